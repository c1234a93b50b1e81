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

// Run is the service: it reads the environment, serves until the context ends, and then ends in good order. It returns
// an error if it cannot begin.
func Run(ctx context.Context, environ []string, stderr io.Writer) error {
	settings, warnings, err := ReadSettings(environ)
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // so that it ends nothing before the rules' watcher, which reads the files first, hears of it
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
	if stderr == io.Writer(os.Stderr) { // libraries that log on their own
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
		err = p.server.Run(ctx) // which answers what was asked before it returns
		if err == nil {
			err = context.Cause(ctx)
		}
	}
	if errors.Is(err, context.Canceled) { // it was told to end
		p.log.Info("ended")
		return nil
	}
	return err
}

// logTimeout is how long the end of the program waits for the reader of its log.
const logTimeout = time.Second

// exitOnSecondSignal ends the process when it is told to end a second time. The lines that wait are written. The function that it
// returns is called when the program has ended.
func (p *program) exitOnSecondSignal(lines *logwriter.Writer) (ended func()) {
	second, stop := logwriter.SecondSignal()
	done := make(chan struct{})
	var exiting sync.Mutex // held until the process exits, so that the orderly end does not return with another code meanwhile
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

// exitForced is the exit code of a process that was told to end twice.
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

	loadFailed atomic.Bool // the last rules could not be loaded

	server *listen.Server
	http   []*http.Server          // of the other pages
	fail   context.CancelCauseFunc // ends the program
	// What goes on beside requests goes on until they are answered.
	work  context.Context
	rest  context.CancelFunc // ends work
	group sync.WaitGroup     // of all goroutines
}

// begin starts everything, in the order in which it is needed: Envoy's requests are taken last.
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

// in runs f on a goroutine that the program waits for.
func (p *program) in(f func()) { p.group.Go(f) }

// beginStore connects to the store. Without a fail mode nothing can be answered before it is there, so that nothing
// listens either, as in the reference; with one the store may come later.
func (p *program) beginStore(ctx context.Context) error {
	p.watch = newStoreWatch(p.log, p.storeHealth)
	events := sluice.Events{
		OnStoreError: func(ctx context.Context, err error) {
			p.log.Debug("the store did not answer", "error", err)
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
			return 0 // not read yet
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

// errSlow is why a breaker opened if the shard replied, and too late.
var errSlow = errors.New("replies exceed the store timeout")

// watchStore follows the health of an open store. Memcached is opened without a call, so that the service is unhealthy until it
// has answered once.
func (p *program) watchStore(servers []storeServer) {
	p.ready.set(partRedis, p.settings.Backend != "memcache")
	if len(servers) > 0 {
		p.in(func() { p.watch.run(p.work, servers) })
	}
}

// storeHealth notes whether all servers of the store are available. The service's own health follows if the settings ask for it.
func (p *program) storeHealth(healthy bool) {
	if healthy || p.settings.ByActivity {
		p.ready.set(partRedis, healthy)
	}
}

// connect opens the store, and tries again while its server does not answer.
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
		p.log.Error("the store does not answer: trying again", "error", err, "in", pause)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, max(p.settings.Startup.Most, pause))
	}
}

// beginRules starts to follow the rules, and waits until there are some or could have been.
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

// use puts rules to use.
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

// loaded reports rules that are in use. After an error it is a warning: the error was seen at the default level, and so is its end.
func (p *program) loaded(set *rules.Set) {
	level := slog.LevelInfo
	if p.loadFailed.Swap(false) {
		level = slog.LevelWarn
	}
	p.log.Log(context.Background(), level, "Successfully loaded new configuration", "domains", len(set.Config().Domains))
	for _, w := range set.Warnings() {
		p.log.Warn("a rule may not do what it should", "warning", w.String())
	}
}

// refused notes rules that cannot be used.
func (p *program) refused(err error) {
	p.stats.ConfigLoadError.Add(1)
	p.loadFailed.Store(true)
	p.log.Error("Error loading new configuration: the last good one stays",
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
		Lost: func(err error) { p.log.Error("the control plane does not send rules: trying again", "error", err) },
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

// stop ends what the server needed, once it has ended or could not begin.
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
