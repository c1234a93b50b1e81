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
	cfg     Config
	servers []*server
	born    time.Time

	seen    atomic.Pointer[view] // who may be chosen; nil when that has changed
	turn    atomic.Uint64        // of round robin
	retries budget
	log     sampler

	upgrades upgrades

	mu sync.Mutex // guards who rests and who is down
}

// New makes a group. Nothing is connected to, and nobody is asked, until Run or a request.
func New(cfg Config) (*Group, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g := &Group{cfg: cfg, born: time.Now(), log: sampler{to: cfg.Log}}
	g.retries.fill()
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
	g.retries.earn()
	x := &exchange{w: w, control: *http.NewResponseController(w), r: r, idle: g.cfg.Timeouts.Idle, header: g.cfg.Timeouts.Header}
	if r.ProtoMajor == 1 && r.ProtoMinor > 0 {
		x.upgrade = upgradeOf(r.Header)
	}
	if x.plain = x.upgrade == "" && isPlain(r); x.plain {
		if f := x.readSmall(); f != nil {
			g.refuse(w, r, nil, f)
			return
		}
	}
	var tried []*server
	for retries, dials := 0, 0; ; {
		s := g.pick(r, tried)
		f := g.attempt(x, s)
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
		case f.repeatable && retries < g.cfg.Retries && g.retries.spend():
			retries++
			again = true
		}
		if !again {
			x.closeUnread()
			g.refuse(w, r, s, f)
			return
		}
		s.retried.Add(1)
		tried = append(tried, s)
	}
}

// attempt has one server answer. It returns nil if the answer has been handed on, or begun to be.
func (g *Group) attempt(x *exchange, s *server) *failure {
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	s.requests.Add(1)
	x.begin()
	defer x.over() // on every way out
	if g.cfg.Chosen != nil {
		g.cfg.Chosen(x.r, s.name)
	}
	if f := x.send(s); f != nil {
		if !left(x.r.Context()) {
			g.failed(s, f)
		}
		return f
	}
	g.deliver(x, s)
	return nil
}

// left says whether the caller has, as opposed to having run out of time.
func left(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// Status is what is known of the servers, in the order of the configuration.
func (g *Group) Status() []ServerStatus {
	all := make([]ServerStatus, len(g.servers))
	now := time.Since(g.born)
	for i, s := range g.servers {
		st := &all[i]
		*st = ServerStatus{
			Server: s.name, State: StateUp, Requests: s.requests.Load(), InFlight: s.inFlight.Load(),
			Upgraded: s.upgraded.Load(), Failures: s.failures.Load(), Retries: s.retried.Load(), Ejections: s.ejections.Load(),
		}
		switch rest := time.Duration(s.restUntil.Load()); {
		case s.down.Load():
			st.State = StateDown
		case rest > now:
			st.State, st.Rest = StateResting, rest-now
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
