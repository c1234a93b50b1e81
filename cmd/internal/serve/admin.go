package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminapi"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/operate/topkeys"
	"github.com/sluiceproject/sluice/cmd/internal/stores"
	"github.com/sluiceproject/sluice/memstore"
)

// operated is the service as the admin API sees it.
type operated struct {
	*snapshot
	version string
	started time.Time
	level   *slog.LevelVar // log level, changed by the admin API
	loaded  *ruleSource
	store   stores.Opened
	queue   *queue.Queue    // nil: no queue
	token   *adminapi.Token // set by config; nil: no token is required
	ending  <-chan struct{} // closed when the service shuts down

	// The server is created later; these functions refer to it.
	addrs   func() map[string]net.Addr
	unready func() error
	reload  func() // certificates and accounts
	// restartNeeded returns the settings that a reload does not apply.
	restartNeeded func() ([]string, error)
}

// listener returns the admin listener, or the zero value if it is off.
func (o *operated) listener() (listen.HTTP, error) {
	c := &o.cfg.Admin
	if c.Address == config.Off {
		return listen.HTTP{}, nil
	}
	cfg, err := o.config()
	if err != nil {
		return listen.HTTP{}, err
	}
	if c.TokenFile != "" && c.TLS.CertFile == "" && !strings.HasPrefix(c.Address, "unix:") && !isLoopback(c.Address) {
		o.log.Warn("admin listener accepts tokens without TLS", "address", c.Address, "setting", "listeners.admin.tls")
	}
	return listen.HTTP{Endpoint: endpoint(c.Address, c.TLS, c.MaxConnections, 0), Handler: adminapi.New(cfg)}, nil
}

func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// config returns the configuration of the admin API.
func (o *operated) config() (adminapi.Config, error) {
	attempts, err := failedTokens()
	if err != nil {
		return adminapi.Config{}, err
	}
	cfg := adminapi.Config{
		Limiter: o.limiter, Rules: o.rules, Level: o.level, Log: o.log, Digest: o.loaded.digest, Status: o.status,
		Attempts: attempts, Hosts: o.cfg.Admin.AllowedHosts, Ending: o.ending, Keyed: keyedRules(o.cfg),
		Queue: adminQueue(o.queue),
	}
	if o.loaded.watcher != nil {
		cfg.Reload, cfg.RestartNeeded = o.readAgain, o.restartNeeded
	}
	if file := o.cfg.Admin.TokenFile; file != "" {
		if o.token, err = adminapi.ReadToken("admin tokens", file); err != nil {
			return adminapi.Config{}, fmt.Errorf("admin.token_file: %w", err)
		}
		cfg.Token = o.token
	}
	observeFor(&cfg, o.snapshot)
	return cfg, nil
}

// observeFor sets the metrics, counts, verdicts and top keys of the admin API.
func observeFor(c *adminapi.Config, from *snapshot) {
	c.Metrics, c.MetricsPublic = metricsHandler(from), from.cfg.Metrics.AllowUnauthenticated
	c.Counts = func() map[string]adminmsg.Counts {
		all := make(map[string]adminmsg.Counts)
		for _, r := range from.metrics.PerRule() {
			all[r.Name] = adminmsg.Counts{Allowed: r.Allowed, Denied: r.Denied, ShadowDenied: r.ShadowDenied, NearLimit: r.Near}
		}
		return all
	}
	c.Verdicts = func() map[string]adminmsg.Verdict { return verdictsOf(from.verdicts) }
	c.Denied, c.Near = topOf(from.metrics.Denied), topOf(from.metrics.Near)
}

func topOf(sketch *topkeys.Sketch) func(int) []adminapi.Top {
	return func(n int) (all []adminapi.Top) {
		for _, e := range sketch.Top(n) {
			all = append(all, adminapi.Top(e))
		}
		return all
	}
}

// failedTokens returns the limiter of wrong tokens per address.
func failedTokens() (*sluice.Limiter, error) {
	store, err := memstore.Open(memstore.Config{MaxBytes: 1 << 20})
	if err != nil {
		return nil, err
	}
	return sluice.New(store, "wrong-tokens", sluice.PerMinute(10))
}

// readAgain reloads rules, certificates and accounts.
func (o *operated) readAgain() (digest string, changed bool, err error) {
	before := o.loaded.digest()
	o.reload()
	err = o.loaded.watcher.Reload()
	return o.loaded.digest(), o.loaded.digest() != before, err
}

// status returns the status of the service.
func (o *operated) status(ctx context.Context) adminmsg.Status {
	out := adminmsg.Status{
		Version: o.version, Store: o.storeStatus(ctx), Listeners: map[string]string{},
		Rules: adminmsg.RulesStatus{Digest: o.loaded.digest(), LoadedAt: o.started.UTC()},
	}
	for name, addr := range o.addrs() {
		out.Listeners[name] = addr.String()
	}
	if err := o.unready(); err != nil {
		out.Unready = err.Error()
	}
	if o.loaded.watcher == nil {
		return out
	}
	now := o.loaded.watcher.Status()
	out.Rules.LoadedAt = now.LoadedAt.UTC()
	if now.LastError != nil {
		out.Rules.LastError = &adminmsg.LastError{Time: now.FailingSince.UTC(), Message: now.LastError.Error()}
	}
	for _, source := range o.loaded.watcher.Current().Files {
		out.Rules.Files = append(out.Rules.Files, source.Name)
	}
	return out
}

// storeStatus pings the store and returns its status.
func (o *operated) storeStatus(ctx context.Context) adminmsg.StoreStatus {
	out := adminmsg.StoreStatus{Kind: o.cfg.Store.Kind, Up: true, Instances: o.store.Instances()}
	if o.store.Ping != nil {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := o.store.Ping(ctx); err != nil {
			out.Up, out.Error = false, err.Error()
		}
	}
	if o.store.Servers != nil {
		for n := range o.store.Servers() {
			out.Servers = append(out.Servers, adminmsg.ServerStatus{Shard: n, Address: o.store.Server(n), Up: out.Up})
		}
	}
	o.breakers.describe(&out)
	return out
}
