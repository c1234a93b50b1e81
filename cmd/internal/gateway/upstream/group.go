package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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

// New makes a group. Nothing is connected to, and nobody is asked, until Run or a request.
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

// dialTries is how many other servers are tried when connections cannot be made.
const dialTries = 3

// ServeHTTP forwards a request. It panics with http.ErrAbortHandler when an answer that has begun cannot be completed.
func (g *Group) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.cfg.Timeouts.Total > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), g.cfg.Timeouts.Total)
		defer cancel()
		r = r.WithContext(ctx)
	}
	g.retryBudget.onRequest()
	rt := &roundTrip{w: w, control: *http.NewResponseController(w), r: r, idleTimeout: g.cfg.Timeouts.Idle, headerTimeout: g.cfg.Timeouts.Header}
	if r.ProtoMajor == 1 && r.ProtoMinor > 0 {
		rt.upgrade = upgradeOf(r.Header)
	}
	if rt.poolable = rt.upgrade == "" && usesPool(r); rt.poolable {
		if f := rt.readSmall(); f != nil {
			g.refuse(w, r, nil, f)
			return
		}
	}
	var tried []*server
	for retries, dials := 0, 0; ; {
		s := g.pick(r, tried)
		f := g.attempt(rt, s)
		if f == nil {
			return
		}
		again := false
		switch {
		case r.Context().Err() != nil:
		case f.kind == failDial:
			if again = g.cfg.Retries > 0 && len(tried)+1 < len(g.servers) && dials < dialTries; again {
				dials++
			}
		case f.repeatable && retries < g.cfg.Retries && g.retryBudget.spend():
			retries++
			again = true
		}
		if !again {
			rt.closeUnread()
			g.refuse(w, r, s, f)
			return
		}
		s.retried.Add(1)
		tried = append(tried, s)
	}
}

// attempt has one server answer. It returns nil if the answer has been handed on, or begun to be.
func (g *Group) attempt(rt *roundTrip, s *server) *failure {
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	s.requests.Add(1)
	rt.beginAttempt()
	defer rt.endAttempt() // on every way out
	if g.cfg.OnServerChosen != nil {
		g.cfg.OnServerChosen(rt.r, s.name)
	}
	if f := rt.send(s); f != nil {
		if !clientClosed(rt.r.Context()) {
			g.failed(s, f)
		}
		return f
	}
	g.deliver(rt, s)
	return nil
}

// clientClosed reports whether the caller has closed its connection, as opposed to having run out of time.
func clientClosed(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
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

// Close ends connections that nobody uses. Requests in flight and upgraded connections go on, see Shutdown; connections
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
