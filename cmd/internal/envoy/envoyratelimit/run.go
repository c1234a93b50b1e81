package envoyratelimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/envoy/stats"
	"github.com/sluiceproject/sluice/cmd/internal/envoy/xds"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
	"github.com/sluiceproject/sluice/cmd/internal/stores"
	"github.com/sluiceproject/sluice/internal/panics"
	"github.com/sluiceproject/sluice/rules"
)

// Run runs the service: it reads the environment variables, serves until ctx is done, and then shuts down gracefully. It
// returns an error if the service cannot start.
func Run(ctx context.Context, environ []string, stderr io.Writer) error {
	settings, warnings, err := ReadSettings(environ)
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // so that SIGHUP does not end the process before the watcher of the rules handles it
	defer signal.Stop(hangup)
	lines := logwriter.NewLog(stderr, func(w io.Writer) *slog.Logger { return newLog(w, settings) })
	defer func() { _ = lines.Close(logTimeout) }()
	p := &program{
		settings: settings, log: newLog(lines, settings), stats: stats.New(settings.Stats.MaxSeries), ready: newReadiness(),
		bounds: rls.Bounds{
			Descriptors: settings.Counting.MaxDescriptors, DescriptorsSetting: "SLUICE_MAX_DESCRIPTORS",
			Message: settings.GRPC.MaxMessage, MessageSetting: "SLUICE_MAX_MESSAGE_BYTES",
		},
	}
	if stderr == io.Writer(os.Stderr) { // for libraries with their own logging
		slog.SetLogLoggerLevel(slog.LevelWarn)
		slog.SetDefault(p.log)
	}
	for _, warning := range warnings {
		p.log.Warn(warning)
	}
	defer p.exitOnSecondSignal(lines)()
	ctx, p.fail = context.WithCancelCause(ctx)
	p.work, p.rest = context.WithCancel(context.WithoutCancel(ctx))
	defer p.stop()
	if err = p.begin(ctx); err == nil {
		context.AfterFunc(ctx, func() { p.ready.set(partEnding, false) })
		err = p.server.Run(ctx) // serves the requests in flight before it returns
		if err == nil {
			err = context.Cause(ctx)
		}
	}
	if errors.Is(err, context.Canceled) { // by a signal
		p.log.Info("stopped")
		return nil
	}
	return err
}

// logTimeout is the maximum time that shutdown waits for the output of the log.
const logTimeout = time.Second

// exitOnSecondSignal exits the process on the second SIGINT or SIGTERM, after writing the buffered log lines. The caller must
// call ended when the graceful shutdown is complete.
func (p *program) exitOnSecondSignal(lines *logwriter.Writer) (ended func()) {
	second, stop := logwriter.SecondSignal()
	done := make(chan struct{})
	var exiting sync.Mutex // held until the process exits, so that Run does not return with another exit code
	go func() {
		defer stop()
		select {
		case <-second:
			exiting.Lock()
			p.log.Error("second signal received: exiting")
			_ = lines.Close(logTimeout)
			os.Exit(exitForced)
		case <-done:
		}
	}()
	return func() {
		exiting.Lock()
		defer exiting.Unlock()
		close(done)
	}
}

// exitForced is the exit code after a second signal.
const exitForced = 1

// program is a running service.
type program struct {
	settings *Settings
	log      *slog.Logger
	stats    *stats.Stats
	ready    *readiness
	bounds   rls.Bounds
	service  *Service
	store    atomic.Pointer[stores.Opened]
	watch    *storeWatch

	loadFailed atomic.Bool // the last load of the rules failed

	server *listen.Server
	http   []*http.Server          // debug and Prometheus pages
	fail   context.CancelCauseFunc // ends the program
	// Background work runs until all requests are done.
	work  context.Context
	rest  context.CancelFunc // ends work
	group sync.WaitGroup     // waits for all goroutines
}

// begin starts all parts in the order of their dependencies: the listeners come last.
func (p *program) begin(ctx context.Context) error {
	if err := p.beginStats(); err != nil {
		return err
	}
	if err := p.beginStore(ctx); err != nil {
		return err
	}
	if err := p.beginRules(ctx); err != nil {
		return err
	}
	return p.listen()
}

// in runs f on a goroutine that stop waits for.
func (p *program) in(f func()) { p.group.Go(f) }

// beginStore connects to the store. Without a fail mode no request can be served without the store, so that nothing listens
// before it is connected, as in the reference. With a fail mode the store may be connected later.
func (p *program) beginStore(ctx context.Context) error {
	p.watch = newStoreWatch(p.log, p.storeHealth)
	events := sluice.Events{
		OnStoreError: func(ctx context.Context, err error) {
			p.log.Debug("store call failed", "error", err)
			p.watch.requestFailed(err)
			p.service.Failed(ctx, err)
		},
		OnShardUnavailable: func(_ context.Context, shard int, err error) {
			if err == nil {
				err = errSlow
			}
			p.log.Warn("store breaker opened", "shard", shard, "error", err)
		},
		OnShardRecovered: func(_ context.Context, shard int) { p.log.Warn("store breaker closed", "shard", shard) },
	}
	nodes := func() int {
		switch o := p.store.Load(); {
		case o == nil && p.settings.Backend == "redis" && !p.settings.Counting.EnvoyKeys:
			return 0 // unknown
		case o == nil:
			return 1
		default:
			return o.Instances()
		}
	}
	var store sluice.Store
	if p.settings.Backend == "memory" || p.settings.Counting.OnFailure == "error" {
		o, err := p.connect(ctx)
		if err != nil {
			return err
		}
		store = o.Store
		p.watchStore(o.servers)
	} else {
		later := &lazyStore{servers: p.settings.servers()}
		store = later
		p.in(func() {
			switch o, err := p.connect(p.work); {
			case err == nil:
				remote := o.Store.(sluice.RemoteStore)
				later.store.Store(&remote)
				p.watchStore(o.servers)
			case p.work.Err() == nil:
				p.fail(err)
			}
		})
	}
	var err error
	p.service, err = NewService(store, p.settings, p.stats, sluice.WithEvents(events), sluice.WithInstances(nodes))
	if err == nil {
		p.service.counts = p.watch.requestCounted
	}
	return err
}

// errSlow is the error of a breaker that opened because the shard replied too late.
var errSlow = errors.New("replies exceed the store timeout")

// watchStore starts the health checks of an open store. Memcached is opened without a call, so that the service is unhealthy
// until the first check succeeds.
func (p *program) watchStore(servers []storeServer) {
	p.ready.set(partRedis, p.settings.Backend != "memcache")
	if len(servers) > 0 {
		p.in(func() { p.watch.run(p.work, servers) })
	}
}

// storeHealth records whether all servers of the store are available. The health of the service follows with
// REDIS_HEALTH_CHECK_ACTIVE_CONNECTION.
func (p *program) storeHealth(healthy bool) {
	if healthy || p.settings.ByActivity {
		p.ready.set(partRedis, healthy)
	}
}

// connect opens the store. It retries while the store is unavailable.
func (p *program) connect(ctx context.Context) (*openedStore, error) {
	p.ready.set(partRedis, false)
	pause := max(p.settings.Startup.First, time.Millisecond)
	began := time.Now()
	for failed := false; ; failed = true {
		o, err := openStore(ctx, p.settings)
		if err == nil {
			if failed {
				p.log.Warn("store available")
			}
			p.store.Store(&o.Opened)
			p.in(func() { o.Run(p.work) })
			return o, nil
		}
		total := p.settings.Startup.Total
		if !errors.Is(err, sluice.ErrUnavailable) || total > 0 && time.Since(began)+pause > total {
			return nil, err
		}
		p.log.Error("store connection failed", "error", err, "retry_in", pause)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, max(p.settings.Startup.Most, pause))
	}
}

// beginRules starts loading rules and waits for the first attempt.
func (p *program) beginRules(ctx context.Context) error {
	p.ready.set(partConfig, !p.settings.Rules.HealthyOnlyWithSome)
	tried := make(chan struct{})
	first := sync.OnceFunc(func() { close(tried) })
	if p.settings.Rules.Source == "FILE" {
		f := newFiles(p.settings.Rules, p.use, p.loaded, p.refused, p.log)
		p.in(func() { f.run(p.work, first) })
	} else {
		c, err := p.xds(first)
		if err != nil {
			return err
		}
		p.in(func() {
			if err := xds.Run(p.work, c); err != nil {
				p.fail(err)
			}
		})
	}
	if p.settings.Rules.StartWithout {
		return nil
	}
	select {
	case <-tried:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// use applies a rule set.
func (p *program) use(set *rules.Set) (err error) {
	defer panics.Recover(func(e *panics.Error) { err = e })
	if err := p.service.Use(set); err != nil {
		return err
	}
	p.stats.ConfigLoadSuccess.Add(1)
	domains := len(set.Config().Domains)
	if p.settings.Rules.HealthyOnlyWithSome {
		p.ready.set(partConfig, domains > 0)
	}
	return nil
}

// loaded logs that rules are in use. After an error it logs a warning, so that the recovery is visible at the default level, as
// the error was.
func (p *program) loaded(set *rules.Set) {
	level := slog.LevelInfo
	if p.loadFailed.Swap(false) {
		level = slog.LevelWarn
	}
	p.log.Log(context.Background(), level, "Successfully loaded new configuration", "domains", len(set.Config().Domains))
	for _, w := range set.Warnings() {
		p.log.Warn("rule warning", "warning", w.String())
	}
}

// refused logs and counts rules that cannot be loaded.
func (p *program) refused(err error) {
	p.stats.ConfigLoadError.Add(1)
	p.loadFailed.Store(true)
	p.log.Error("Error loading new configuration: previous configuration stays in use",
		append([]any{"error", err}, panics.LogArgs(err)...)...)
}

func (p *program) xds(first func()) (xds.Config, error) {
	x := &p.settings.XDS
	c := xds.Config{
		Server: x.Server, NodeID: x.NodeID, NodeMetadata: make(map[string]string), Headers: x.Headers, MaxMessage: x.MaxMessage,
		Merge: p.settings.Rules.Merge, ConnectRetry: x.ConnectRetry, BackoffMin: x.BackoffMin, BackoffMax: x.BackoffMax,
		Use: func(set *rules.Set) error {
			defer first()
			err := p.use(set)
			if err == nil {
				p.loaded(set)
			}
			return err
		},
		Failed: func(err error) {
			p.refused(err)
			first()
		},
		Lost: func(err error) { p.log.Error("xDS stream failed", "error", err) },
	}
	if x.BackoffJitter {
		c.Jitter = min(x.BackoffFactor, 1)
	}
	for part := range strings.SplitSeq(x.NodeMetadata, ",") {
		if name, value, ok := strings.Cut(part, "="); ok {
			c.NodeMetadata[name] = value
		}
	}
	if x.UseTLS {
		var err error
		if c.TLS, err = clientTLS(x.Cert, x.Key, x.CA, false); err != nil {
			return c, fmt.Errorf("CONFIG_GRPC_XDS_…TLS…: %w", err)
		}
		c.TLS.ServerName = x.Name
	}
	return c, nil
}

// stop ends the background work and closes the store, after the server has ended or failed to start.
func (p *program) stop() {
	p.rest()
	p.fail(nil)
	if p.server != nil {
		p.server.Close()
	}
	for _, server := range p.http {
		server.Close()
	}
	p.group.Wait()
	if o := p.store.Load(); o != nil {
		o.Close()
	}
}
