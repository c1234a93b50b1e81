package upstream

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Group forwards requests to its servers.
type Group struct {
	cfg       Config
	servers   []*server
	startedAt time.Time

	serverSet   atomic.Pointer[serverSet] // the usable servers; nil before the first request
	nextServer  atomic.Uint64             // for round robin
	retryBudget retryBudget
	log         sampler

	upgrades upgrades

	mu sync.Mutex // guards changes of the ejected and unhealthy servers
}

// New returns a Group. It opens no connections before Run or the first request.
func New(cfg Config) (*Group, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g := &Group{cfg: cfg, startedAt: time.Now(), log: sampler{to: cfg.Log}}
	g.retryBudget.fill()
	for i, text := range cfg.Servers {
		u, err := parseServer(text)
		if err != nil {
			return nil, fmt.Errorf("upstream %q: %w", cfg.Name, err)
		}
		if slices.ContainsFunc(g.servers, func(s *server) bool { return s.url.Host == u.Host }) {
			return nil, fmt.Errorf("upstream %q: servers: %s is listed twice; set a weight instead", cfg.Name, u.Host)
		}
		weight := 1
		if cfg.Weights != nil {
			weight = cfg.Weights[i]
		}
		s, err := newServer(g, text, u, weight)
		if err != nil {
			return nil, fmt.Errorf("upstream %q: %w", cfg.Name, err)
		}
		g.servers = append(g.servers, s)
	}
	return g, nil
}

// Status returns the status of the servers, in the order of the configuration.
func (g *Group) Status() []ServerStatus {
	all := make([]ServerStatus, len(g.servers))
	now := time.Since(g.startedAt)
	for i, s := range g.servers {
		st := &all[i]
		*st = ServerStatus{
			Server: s.name, State: StateUp, Requests: s.requests.Load(), InFlight: s.inFlight.Load(),
			Upgraded: s.upgraded.Load(), Failures: s.failures.Load(), Retries: s.retried.Load(), Ejections: s.ejections.Load(),
		}
		switch ejectedFor := time.Duration(s.ejectedUntil.Load()); {
		case s.down.Load():
			st.State = StateDown
		case ejectedFor > now:
			st.State, st.EjectedFor = StateEjected, ejectedFor-now
		}
	}
	return all
}

// Close closes idle connections. Requests in flight and upgraded connections continue, see Shutdown; their connections are
// closed afterwards, at once or within 30 s.
func (g *Group) Close() {
	for _, s := range g.servers {
		s.close()
	}
}

// Shutdown closes the group and waits until upgraded connections have ended, which it closes when ctx is done. Call it after
// http.Server.Shutdown, which does not track upgraded connections.
func (g *Group) Shutdown(ctx context.Context) error {
	g.Close()
	return g.upgrades.end(ctx)
}
