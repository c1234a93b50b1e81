package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminapi"
	"github.com/sluiceproject/sluice/cmd/internal/operate/insight"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/cmd/internal/operate/telemetry"
	"github.com/sluiceproject/sluice/cmd/internal/stores"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/rules"
)

// Options are the options of a service that are not in its configuration.
type Options struct {
	Version string    // of the program
	Log     io.Writer // usually standard error
	// Changed returns the settings that have changed in the configuration file since the service read it. Nil: no file.
	Changed func() ([]string, error)
	// Background runs until ctx is done, while the service runs. It may be nil.
	Background func(ctx context.Context, s *Service)
}

// Service is an open service: its store, rules and queue are open, and its listeners accept connections.
type Service struct {
	snapshot   *snapshot
	server     *listen.Server
	gateway    *gatewayRuntime // nil: no gateway
	collectors collectors
	parts      []part // in opening order
	builtIn    bool   // only BuiltInRules
	hangup     chan os.Signal
	changed    func() ([]string, error) // Options.Changed
	background func(ctx context.Context, s *Service)
	unsaved    error // of saving the store's snapshot
}

// snapshot are the values that all parts of a service are built from. It is immutable.
type snapshot struct {
	cfg      *config.Config
	log      *slog.Logger
	rules    func() *rules.Set
	limiter  *sluice.Limiter
	metrics  *metrics.Metrics
	verdicts *insight.Recorder
	breakers *breakers
	traces   *telemetry.Traces // nil: no tracing
}

// part is a component of a service. Any of its functions may be nil.
type part struct {
	run    func(ctx context.Context) // until ctx is done
	reload func()                    // reloads certificates and accounts
	reopen func()                    // reopens log files
	close  func()                    // called after all run functions have returned, last part first
}

func (s *Service) add(p part) { s.parts = append(s.parts, p) }

// New opens a service. [Service.Run] must be called to run and close it. If ctx is done and neither New nor Run returns in time,
// the process exits.
func New(ctx context.Context, cfg config.Config, o Options) (_ *Service, err error) {
	started := time.Now()
	s := &Service{hangup: make(chan os.Signal, 1), background: o.Background, changed: o.Changed}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	signal.Notify(s.hangup, syscall.SIGHUP) // first, because an unhandled SIGHUP ends the process
	s.add(part{close: func() { signal.Stop(s.hangup) }})
	log := openLog(&cfg, o.Log)
	s.add(part{close: log.close})
	s.add(part{close: endInTime(ctx, &cfg.Drain, log)})

	base, err := s.openBase(&cfg, log.Logger)
	if err != nil {
		return nil, err
	}
	if s.snapshot, s.collectors, err = newSnapshot(&cfg, o.Version, base, log); err != nil {
		return nil, err
	}
	s.add(part{run: s.snapshot.verdicts.Run})
	err = s.listen(edges{snapshot: s.snapshot, secret: base.secret, refunds: base.refunds, queue: base.queue, shed: base.shed}, &operated{
		snapshot: s.snapshot, version: o.Version, started: started, level: log.level, loaded: base.loaded, store: base.store, queue: base.queue,
		ending: ctx.Done(), addrs: s.Addrs, unready: func() error { return s.server.Unready() }, reload: s.reload, restartNeeded: s.restartNeeded,
	})
	if err != nil {
		return nil, err
	}
	log.beforeExit(s.gateway.close)
	if ping := base.store.Ping; ping != nil && cfg.Store.Required {
		s.add(part{run: func(ctx context.Context) { stores.WatchHealth(ctx, ping, log.Logger, s.storeHealth) }})
	}
	return s, nil
}

// storeHealth makes health checks fail while the store is unavailable.
func (s *Service) storeHealth(err error) {
	if err != nil {
		err = fmt.Errorf("store: %w", err)
	}
	s.server.SetUnavailable(err)
}

// base are the rules, the store, the queue and the secrets that the other parts are built on.
type base struct {
	loaded *ruleSource
	secret []byte // reservation secret; nil: random
	// refunds authorizes refunds by token; nil: they are rejected.
	refunds *adminapi.Guard
	store   stores.Opened
	queue   *queue.Queue       // nil: no queue
	shed    *admission.Shedder // nil: no gateway
}

// openBase opens the parts that do not need the limiter.
func (s *Service) openBase(cfg *config.Config, log *slog.Logger) (b base, err error) {
	if b.loaded, err = openRules(cfg, log); err != nil {
		return b, err
	}
	s.builtIn = b.loaded.watcher == nil
	s.add(part{run: b.loaded.run})
	if b.secret, err = readReservationSecret(cfg.CheckAPI.ReservationSecretFile); err != nil {
		return b, fmt.Errorf("serve: %w", err)
	}
	if b.refunds, err = refundGuard(cfg.CheckAPI.RefundTokenFile); err != nil {
		return b, fmt.Errorf("serve: %w", err)
	}
	if b.store, err = stores.Open(&cfg.Store, log, false); err != nil {
		return b, err
	}
	s.add(part{run: b.store.Run, close: b.store.Close})
	if save := b.store.Save; save != nil {
		s.add(part{close: func() { s.unsaved = save() }})
	}
	if b.queue, err = openQueue(cfg, log, false); err != nil {
		return b, fmt.Errorf("serve: %w", err)
	}
	if q := b.queue; q != nil {
		s.add(part{run: func(ctx context.Context) { _ = q.Run(ctx) }, close: func() { closeQueue(q, log) }})
	}
	if b.shed = newShedder(cfg, b.loaded.set); b.shed != nil {
		s.add(part{run: b.shed.Run})
	}
	return b, nil
}

// newSnapshot creates metrics, traces and the limiter of all listeners, whose decisions are counted, logged and traced.
func newSnapshot(cfg *config.Config, version string, b base, log *serviceLog) (*snapshot, collectors, error) {
	verdicts := newVerdicts(b.loaded.set)
	counted := newMetrics(metricsOf{cfg, version, b.loaded, b.store, b.queue, b.shed, verdicts, log.lines.Lost})
	to, err := openCollectors(cfg, version, counted, log.Logger, false)
	if err != nil {
		return nil, to, err
	}
	events, err := newEvents(&cfg.Logging, log.Logger, b.loaded.set, counted, to.traces, b.store.Server)
	if err != nil {
		return nil, to, fmt.Errorf("serve: %w", err)
	}
	watched := &breakers{server: b.store.Server}
	events = joinEvents(events, watched.events(), verdicts.Events())
	limiter, err := newLimiter(b.store, to.traces, cfg.Store.Kind, events)
	if err != nil {
		return nil, to, err
	}
	return &snapshot{cfg: cfg, log: log.Logger, rules: b.loaded.set, limiter: limiter, metrics: counted, verdicts: verdicts, breakers: watched, traces: to.traces}, to, nil
}

// listen opens the gateway and all listeners.
func (s *Service) listen(e edges, operators *operated) error {
	listeners, faults := e.listeners(operators, false)
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	server, err := listen.New(listeners.Config)
	if err != nil {
		listeners.gateway.close()
		return fmt.Errorf("serve: %w", inListeners(err))
	}
	s.server, s.gateway = server, listeners.gateway
	s.add(part{reload: server.Reload})
	for _, f := range listeners.reloaded {
		s.add(part{run: func(ctx context.Context) { f.Run(ctx, e.log) }, reload: func() { f.Reload(e.log) }})
	}
	if g := s.gateway; g != nil {
		s.add(part{run: g.run, reload: g.authn.reload, reopen: g.reopen, close: g.close})
	}
	return nil
}

func newLimiter(store stores.Opened, traces *telemetry.Traces, kind string, events sluice.Events) (*sluice.Limiter, error) {
	return sluice.NewWithRules(traces.Store(store.Store, kind), nil, append(store.Options, sluice.WithEvents(events))...)
}

// addrText returns the address of a listener as in the configuration.
func addrText(a net.Addr) string {
	if a == nil {
		return config.Off
	}
	return a.String()
}

// Run serves until ctx is done, shuts down gracefully and closes the service.
func (s *Service) Run(ctx context.Context) (err error) {
	defer func() {
		s.close()
		if s.unsaved != nil && err == nil {
			err = fmt.Errorf("serve: save the store's snapshot: %w", s.unsaved)
		}
	}()
	cfg, log := s.snapshot.cfg, s.snapshot.log
	background, stop := context.WithCancel(ctx)
	var running, reporting sync.WaitGroup
	report, reported := context.WithCancel(context.WithoutCancel(ctx))
	reporting.Go(func() { bounds.Log(report, log) })
	defer reporting.Wait() // last, because bounds can be reached until everything else has ended
	defer reported()
	defer running.Wait()
	defer stop()
	for _, p := range s.parts {
		if p.run != nil {
			running.Go(func() { p.run(background) })
		}
	}
	running.Go(func() { s.onHangup(background) })
	log.Info("serving", "grpc", addrText(s.server.GRPCAddr()), "http", addrText(s.server.HTTPAddr()), "admin", addrText(s.server.AdminAddr()),
		"resp", addrText(s.server.Addr(respName)), "gateway", addrText(s.server.GatewayAddr()), "store", cfg.Store.Kind)
	if s.background != nil {
		running.Go(func() { s.background(background, s) })
	}
	err = s.server.Run(ctx)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Drain.Timeout)
	defer cancel()
	_ = s.snapshot.limiter.Close(ending)
	s.collectors.close(ending, log)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	log.Info("stopped")
	return nil
}

// Addrs returns the addresses of the listeners by their names in the configuration.
func (s *Service) Addrs() map[string]net.Addr {
	all := map[string]net.Addr{}
	for name, in := range listenerNames {
		if addr := s.server.Addr(in); addr != nil {
			all[name] = addr
		}
	}
	return all
}

// listenerNames maps names of listeners in the configuration to those in package listen.
var listenerNames = map[string]string{"grpc": "gRPC", "http": "HTTP", "admin": "admin", "resp": respName, "gateway": gatewayName}

// Gateway returns the handler of the gateway. The service must have one.
func (s *Service) Gateway() http.Handler { return s.gateway }

// onHangup reloads certificates and accounts and reopens logs on SIGHUP. The watcher of the rules handles SIGHUP itself.
func (s *Service) onHangup(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.hangup:
			s.reload()
			_, _ = s.restartNeeded() // logged there
			for _, p := range s.parts {
				if p.reopen != nil {
					p.reopen()
				}
			}
		}
	}
}

// reload reloads certificates and accounts.
func (s *Service) reload() {
	for _, p := range s.parts {
		if p.reload != nil {
			p.reload()
		}
	}
}

// restartNeeded logs and returns the settings that have changed in the configuration file. They need a restart to apply.
func (s *Service) restartNeeded() ([]string, error) {
	if s.changed == nil {
		return nil, nil
	}
	all, err := s.changed()
	switch {
	case err != nil:
		s.snapshot.log.Error("configuration file invalid: a restart would fail", "error", err)
	case len(all) > 0:
		s.snapshot.log.Warn("restart required", "settings", strings.Join(all, ", "))
	}
	return all, err
}

func (s *Service) close() {
	for _, p := range slices.Backward(s.parts) {
		if p.close != nil {
			p.close()
		}
	}
}
