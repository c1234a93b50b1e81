package serve

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminapi"
	"github.com/sluiceproject/sluice/cmd/internal/operate/topkeys"
	"github.com/sluiceproject/sluice/memstore"
)

// adminListener is how operators are listened to, and nothing if they are not.
func (s *Service) adminListener() (listen.HTTP, error) {
	c := &s.cfg.Admin
	if c.Address == config.Off {
		return listen.HTTP{}, nil
	}
	cfg, err := s.adminConfig()
	if err != nil {
		return listen.HTTP{}, err
	}
	if c.TokenFile != "" && c.TLS.Cert == "" && !strings.HasPrefix(c.Address, "unix:") && !isLoopback(c.Address) {
		s.log.Warn("operators' token travels in clear: set listeners.admin.tls.cert and key, unless something else encrypts", "address", c.Address)
	}
	return listen.HTTP{
		Address: c.Address, TLS: listen.TLS{Cert: c.TLS.Cert, Key: c.TLS.Key, ClientCA: c.TLS.ClientCA},
		MaxConnections: int(c.MaxConnections), Handler: adminapi.New(cfg),
	}, nil
}

func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// adminConfig is what the admin API works with.
func (s *Service) adminConfig() (adminapi.Config, error) {
	attempts, err := wrongTokens()
	if err != nil {
		return adminapi.Config{}, err
	}
	cfg := adminapi.Config{
		Limiter: s.limiter, Rules: s.rules, Level: s.level, Log: s.log, Digest: s.digest, Status: s.status,
		Attempts: attempts, Hosts: s.cfg.Admin.Hosts, Ending: s.ending, Keyed: s.keyedRules(),
		Queue: s.adminQueue(),
	}
	if s.watcher != nil {
		cfg.Reload = s.reload
	}
	if file := s.cfg.Admin.TokenFile; file != "" {
		if cfg.Token, err = adminapi.ReadToken(file); err != nil {
			return adminapi.Config{}, fmt.Errorf("admin.token_file: %w", err)
		}
	}
	s.observeFor(&cfg)
	return cfg, nil
}

// observeFor gives operators what is counted.
func (s *Service) observeFor(c *adminapi.Config) {
	c.Metrics, c.MetricsPublic = s.metricsHandler(), s.cfg.Metrics.Public
	c.Counts = func() map[string]adminapi.Counts {
		all := make(map[string]adminapi.Counts)
		for _, r := range s.metrics.PerRule() {
			all[r.Name] = adminapi.Counts{Allowed: r.Allowed, Denied: r.Denied, ShadowDenied: r.ShadowDenied, NearLimit: r.Near}
		}
		return all
	}
	c.Denied, c.Near = topOf(s.metrics.Denied), topOf(s.metrics.Near)
}

func topOf(sketch *topkeys.Sketch) func(int) []adminapi.Top {
	return func(most int) (all []adminapi.Top) {
		for _, e := range sketch.Top(most) {
			all = append(all, adminapi.Top(e))
		}
		return all
	}
}

// wrongTokens limits how often an address may show one.
func wrongTokens() (*sluice.Limiter, error) {
	store, err := memstore.Open(memstore.Config{Bytes: 1 << 20})
	if err != nil {
		return nil, err
	}
	return sluice.New(store, "wrong-tokens", sluice.PerMinute(10))
}

func (s *Service) digest() string {
	if s.watcher == nil {
		return "built-in"
	}
	return s.watcher.Status().Digest
}

// reload reads rules and certificates again.
func (s *Service) reload() (digest string, changed bool, err error) {
	before := s.digest()
	s.server.Reload()
	s.authn.reload(s.log)
	err = s.watcher.Reload()
	return s.digest(), s.digest() != before, err
}

// status is how the service is doing.
func (s *Service) status(ctx context.Context) adminapi.Status {
	out := adminapi.Status{
		Version: s.options.Version, Store: s.storeStatus(ctx), Listeners: map[string]string{},
		Rules: adminapi.RulesStatus{Digest: s.digest(), LoadedAt: s.started.UTC()},
	}
	for name, addr := range s.Addrs() {
		out.Listeners[name] = addr.String()
	}
	if err := s.server.Unready(); err != nil {
		out.Unready = err.Error()
	}
	if s.watcher == nil {
		return out
	}
	now := s.watcher.Status()
	out.Rules.LoadedAt = now.Loaded.UTC()
	if now.Err != nil {
		out.Rules.LastError = &adminapi.LastError{At: now.Since.UTC(), Text: now.Err.Error()}
	}
	for _, source := range s.watcher.Current().Sources {
		out.Rules.Files = append(out.Rules.Files, source.Name)
	}
	return out
}

// storeStatus asks the store whether it is there.
func (s *Service) storeStatus(ctx context.Context) adminapi.StoreStatus {
	out := adminapi.StoreStatus{Kind: s.cfg.Store.Kind, Up: true, Instances: s.store.instances()}
	if s.answers != nil {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		out.Up = s.answers(ctx) == nil
	}
	if s.servers != nil {
		for n := range s.servers() {
			out.Servers = append(out.Servers, adminapi.ServerStatus{N: n, Up: out.Up && !s.metrics.Away(n)})
		}
	}
	return out
}
