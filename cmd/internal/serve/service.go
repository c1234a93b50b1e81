package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/cmd/internal/operate/telemetry"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/faults"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/panics"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// Service is what sluice serve runs.
type Service struct {
	cfg      config.Config
	log      *slog.Logger
	logLines *logwriter.Writer // of the log
	level    *slog.LevelVar    // of the log; it may be changed
	store    servedStore
	limiter  *sluice.Limiter
	traces   *telemetry.Traces  // nil: nothing is traced
	sent     *telemetry.Metrics // nil: none are sent
	rules    func() *rules.Set
	watcher  *rulefile.Watcher // nil: the rules are built in
	queue    *queue.Queue      // nil: there is none
	metrics  *metrics.Metrics
	http     *metrics.Requests // to the check API
	server   *listen.Server
	authn    *authentication             // nil: there is no gateway
	gateway  *gated                      // nil: there is none
	shed     *admission.Shedder          // nil: there is no gateway
	secret   []byte                      // of reservations; nil: a random one
	servers  func() int                  // of the store; nil: it has none
	answers  func(context.Context) error // asks the store; nil: it is in memory
	started  time.Time                   // when it was
	dry      bool                        // only errors are wanted: nothing is listened on, connected to or written
	ending   <-chan struct{}             // closed when it is to end

	options Options
}

// Options are what a service is told beside its configuration.
type Options struct {
	Version string    // of the program
	Log     io.Writer // standard error
	// Beside is run while it serves, until the context ends. All listen when it begins.
	Beside func(ctx context.Context, s *Service)
}

// Run serves until the context ends.
func Run(ctx context.Context, cfg config.Config, o Options) error {
	s := &Service{cfg: cfg, options: o}
	return s.open(ctx, o.Log)
}

// Gateway is the gateway, or nil.
func (s *Service) Gateway() http.Handler { return s.gateway }

// Addrs are where it listens, by the names of listeners in its configuration.
func (s *Service) Addrs() map[string]net.Addr {
	all := map[string]net.Addr{}
	for name, in := range listenerNames {
		if addr := s.server.Addr(in); addr != nil {
			all[name] = addr
		}
	}
	return all
}

// listenerNames are what listeners are called in the configuration, and by the server.
var listenerNames = map[string]string{"grpc": "gRPC", "http": "HTTP", "admin": "admin", "resp": respName, "gateway": gatewayName}

func (s *Service) open(ctx context.Context, stderr io.Writer) error {
	s.started, s.ending = time.Now(), ctx.Done()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // from the start, because one that comes before anything reads them would end the process
	defer signal.Stop(hangup)
	s.openLog(stderr)
	defer s.closeLog()
	defer s.endInTime(ctx)()
	if err := s.readRules(); err != nil {
		return err
	}
	if err := s.openCheck(); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	var err error
	if s.store, err = s.openStore(); err != nil {
		return err
	}
	defer s.store.close()
	if err := s.openQueue(); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	defer s.closeQueue()
	s.openShed()
	s.metrics = s.newMetrics()
	if err := s.openTelemetry(); err != nil {
		return err
	}
	events, err := s.events()
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	if s.limiter, err = s.newLimiter(events); err != nil {
		return err
	}
	listeners := s.listeners()
	if err := errors.Join(s.addListeners(&listeners)...); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	defer s.gateway.close()
	if s.server, err = listen.New(listeners); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return s.run(ctx, hangup)
}

func (s *Service) newLimiter(events sluice.Events) (*sluice.Limiter, error) {
	return sluice.NewRules(s.traces.Store(s.store.Store, s.cfg.Store.Kind), nil, append(s.store.options, sluice.WithEvents(events))...)
}

// addListeners adds those that have files of their own. It returns all errors.
func (s *Service) addListeners(to *listen.Config) (faults []error) {
	var err error
	if to.Admin, err = s.adminListener(); err != nil {
		faults = append(faults, err)
	}
	return append(faults, s.listenRESP(to), s.listenGateway(to))
}

// endGrace is how long the service may take to end beyond drain.wait and drain.timeout.
const endGrace = 5 * time.Second

// endInTime ends the process if serve has not returned in time after it was to end, because nothing that hangs, such as a
// file on a server that is gone, may keep it. The function that it returns is called when serve returns.
func (s *Service) endInTime(ctx context.Context) (ended func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-done:
			return
		}
		timer := time.NewTimer(s.cfg.Drain.Wait + s.cfg.Drain.Timeout + endGrace)
		defer timer.Stop()
		select {
		case <-timer.C:
			s.log.Error("shutdown timed out: exiting")
			s.closeLog()
			os.Exit(term.ExitFindings)
		case <-done:
		}
	}()
	return func() { close(done) }
}

// run serves until the context ends.
func (s *Service) run(ctx context.Context, hangup <-chan os.Signal) error {
	background, stop := context.WithCancel(ctx)
	var running, reporting sync.WaitGroup
	report, reported := context.WithCancel(context.WithoutCancel(ctx))
	reporting.Go(func() { bounds.Log(report, s.log) })
	defer reporting.Wait() // bounds are reached until all else has ended
	defer reported()
	defer running.Wait()
	defer stop()
	if s.watcher != nil {
		running.Go(func() { _ = s.watcher.Run(background) })
	}
	running.Go(func() { s.onHangup(background, hangup) })
	running.Go(func() { s.store.run(background) })
	running.Go(func() { s.gateway.run(background) })
	running.Go(func() { s.authn.run(background, s.log) })
	running.Go(func() { s.runShed(background) })
	running.Go(func() { s.runQueue(background) })
	s.log.Info("serving", "grpc", s.server.GRPCAddr(), "http", s.server.HTTPAddr(), "admin", s.server.AdminAddr(), "resp", s.server.Addr(respName),
		"gateway", s.server.GatewayAddr(), "store", s.cfg.Store.Kind)
	running.Go(func() { s.options.Beside(background, s) })
	err := s.server.Run(ctx)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Drain.Timeout)
	defer cancel()
	_ = s.limiter.Close(ending)
	s.closeTelemetry(ending)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	s.log.Info("ended")
	return nil
}

// onHangup has certificates read again on SIGHUP. The rules' watcher hears of it by itself, and reads the files when it begins.
func (s *Service) onHangup(ctx context.Context, hangup <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			s.server.Reload()
			s.authn.reload(s.log)
			s.gateway.reopen(s.log)
		}
	}
}

// BuiltInRules are what there is without rules.
const BuiltInRules = `domain: demo
descriptors:
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 5}
`

const serveGuide = `Sluice answers Envoy's rate limit protocol on %[1]s, and checks in JSON on %[2]s.
Counts are in memory. There are no rules yet, but for the domain "demo": 5 a minute for each remote_address.
In another terminal, six times:

  grpcurl -plaintext -d '{"domain":"demo","descriptors":[{"entries":[{"key":"remote_address","value":"10.0.0.1"}]}]}' \
    %[1]s envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit
  curl --json '{"domain":"demo","descriptors":[[{"key":"remote_address","value":"10.0.0.1"}]]}' http://%[2]s/v1/check

See what it does: sluice status, sluice top, sluice watch.
For rules of your own, name their files in sluice.yaml and run: sluice serve --config sluice.yaml

  rules: {paths: [rules/]}

ctrl-C ends it.
`

// WriteGuide tells who has no rules yet how to try it.
func (s *Service) WriteGuide(stdout io.Writer) {
	if s.watcher == nil && s.server.GRPCAddr() != nil && s.server.HTTPAddr() != nil {
		fmt.Fprintf(stdout, serveGuide, s.server.GRPCAddr(), s.server.HTTPAddr())
	}
}

func (s *Service) readRules() error {
	o := rulefile.Options{MergeDomains: s.cfg.Rules.MergeDomains, ChargeDenied: s.cfg.Rules.ChargeDenied}
	if len(s.cfg.Rules.Paths) == 0 {
		cfg, err := rulefile.Parse(o, rulefile.Source{Name: "demo.yaml", Data: []byte(BuiltInRules)})
		if err != nil {
			return err
		}
		set, err := rules.New(cfg)
		s.rules = func() *rules.Set { return set }
		return err
	}
	var err error
	var before *rules.Set
	s.watcher, err = rulefile.NewWatcher(rulefile.WatchConfig{
		Paths: s.cfg.Rules.Paths, Options: o, Hangup: true,
		OnLoad: func(l *rulefile.Loaded) {
			s.log.Info("rules changed", "digest", l.Digest, "files", len(l.Sources))
			if names := restarted(before, l.Set); len(names) > 0 {
				s.log.Warn("counts start at zero: the algorithm, refill or sub_windows changed", "rules", strings.Join(names, ", "))
			}
			before = l.Set
			s.warnOfRules(l.Set)
		},
		OnError: func(err error) {
			for _, fault := range faults.Each(err) {
				s.log.Error("rules cannot be used: keeping the last good ones",
					append([]any{"fault", fault.Error()}, panics.LogArgs(fault)...)...)
			}
		},
	})
	if err != nil {
		return faults.InRules(err, s.cfg.Rules.Paths)
	}
	s.rules, before = s.watcher.Set, s.watcher.Set()
	s.warnOfRules(before)
	return nil
}

// restarted names the rules whose counts the new set does not read.
func restarted(before, now *rules.Set) (names []string) {
	kinds := make(map[string]string)
	for _, r := range before.Rules() {
		kinds[r.Name] = r.Limit.Kind()
	}
	for _, r := range now.Rules() {
		if kind, ok := kinds[r.Name]; ok && kind != r.Limit.Kind() {
			names = append(names, r.Name)
		}
	}
	return names
}

// warnOfRules says so if there is nothing that Envoy could ask about.
func (s *Service) warnOfRules(set *rules.Set) {
	if len(set.Config().Domains) == 0 && s.cfg.GRPC.Address != config.Off {
		s.log.Warn("no rule file has a domain, so that nothing that Envoy asks is limited: write rules in Envoy's format")
	}
}

// listeners says how the server is made.
func (s *Service) listeners() listen.Config {
	in, out := &s.cfg, listen.Config{
		Log: s.log, DrainWait: s.cfg.Drain.Wait, DrainTimeout: s.cfg.Drain.Timeout,
		Exempt: func(a netip.Addr) bool { return admission.ClientIP(s.rules()).TrustsAddr(a) },
	}
	if g := &in.GRPC; g.Address != config.Off {
		out.GRPC = listen.GRPC{
			Address: g.Address, TLS: listen.TLS{Cert: g.TLS.Cert, Key: g.TLS.Key, ClientCA: g.TLS.ClientCA},
			MaxConnections: int(g.MaxConnections), MaxPerAddress: int(config.Share(g.MaxPerAddress, g.MaxConnections)),
			MaxStreams: uint32(g.MaxStreams), MaxHeaderBytes: uint32(g.MaxHeaderBytes),
			MaxMessageBytes: int(g.MaxMessageBytes), MaxAge: g.MaxAge, MaxAgeGrace: g.MaxAgeGrace,
			HealthNames: []string{"ratelimit", rls.ServiceName}, Reflection: g.Reflection,
			Options: []grpc.ServerOption{rls.ServerOption()},
			Register: func(r grpc.ServiceRegistrar) {
				rls.Register(r, s.traces.RLS(s.decider()), rlsBounds(&in.RLS), s.countRLS())
			},
		}
	}
	if h := &in.HTTP; h.Address != config.Off {
		out.HTTP = listen.HTTP{
			Address: h.Address, TLS: listen.TLS{Cert: h.TLS.Cert, Key: h.TLS.Key, ClientCA: h.TLS.ClientCA},
			MaxConnections: int(h.MaxConnections), MaxPerAddress: int(config.Share(h.MaxPerAddress, h.MaxConnections)), Handler: s.traces.HTTP(s.handler()),
			Unready: s.unready,
			Malformed: func(_ net.Addr, status int) string {
				s.http.Done(strconv.Itoa(status), time.Now())
				return ""
			},
		}
	}
	return out
}

// handler answers what is asked over HTTP, but for health.
func (s *Service) handler() http.Handler {
	mux := http.NewServeMux()
	s.handleAuth(mux)
	s.addMetrics(mux)
	s.handleCheck(mux)
	return mux
}

func rlsBounds(c *config.RLS) rls.Bounds {
	return rls.Bounds{Descriptors: int(c.MaxDescriptors), Entries: int(c.MaxEntries), Bytes: int(c.MaxBytes)}
}

func rlsOptions(c *config.RLS) rls.Options {
	o := rls.Options{
		Overrides: c.Overrides, NegativeHits: c.NegativeHits, Shadow: c.Shadow, Quota: c.Quota, Metadata: c.Metadata,
	}
	if c.Headers.Enabled {
		o.Headers = rls.HeaderNames{Limit: c.Headers.Limit, Remaining: c.Headers.Remaining, Reset: c.Headers.Reset}
	}
	if c.Clients != nil {
		o.Clients = rls.Clients{}
		for name, domains := range c.Clients {
			o.Clients[name] = rls.Domains{}
			for _, d := range domains {
				o.Clients[name][d] = true
			}
		}
	}
	return o
}
