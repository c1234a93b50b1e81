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

	serverSet   atomic.Pointer[serverSet] // the servers that may be chosen; nil when that has changed
	nextServer  atomic.Uint64             // of round robin
	retryBudget retryBudget
	log         sampler

	upgrades upgrades

	mu sync.Mutex // guards who rests and who is down
}

// New makes a group. No server is connected to or asked until Run or a request.
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
			return nil, fmt.Errorf("upstream %q: servers: %s is there twice; give it a weight instead", cfg.Name, u.Host)
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

// Status is what is known of the servers, in the order of the configuration.
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

// Close ends connections that no request uses. Requests in flight and upgraded connections go on, see Shutdown; connections
// that they leave behind end at once or within half a minute.
func (g *Group) Close() {
	for _, s := range g.servers {
		s.close()
	}
}

// Shutdown closes the group, waits until upgraded connections have ended, and ends them when the context does. An
// http.Server knows nothing of those: its own Shutdown comes first, and this afterwards.
func (g *Group) Shutdown(ctx context.Context) error {
	g.Close()
	return g.upgrades.end(ctx)
}
