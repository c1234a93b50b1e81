// Package outagetest runs a limiter on a real server through outages, and checks its guarantees:
//
//   - every call returns a decision of the store or of the rule's fail mode
//   - no fail mode admits more than it may
//   - the limiter uses the server again when it is back
//
// Durations are not checked here. [Measure] measures and logs them, for use on idle machines.
package outagetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/faultproxy"
)

// Server is a real server of the store under test.
type Server struct {
	Addr          string
	Pause, Resume func() // stop and continue the process
	Kill, Restart func() // restart empty
	Operations    func() int64
}

// Harness describes the store under test.
type Harness struct {
	Start func(t testing.TB) *Server
	Open  func(t testing.TB, addr string) sluice.Store // opens a store whose server is at addr
}

// outage is a failure, and how it ends.
type outage struct {
	name    string
	begin   func(*faultproxy.Proxy, *Server)
	end     func(*faultproxy.Proxy, *Server)
	away    bool // the limiter must stop calling the server
	forgets bool // the server loses its state
}

func network(name string, away bool, f faultproxy.Fault) outage {
	return outage{
		name: name, away: away,
		begin: func(p *faultproxy.Proxy, _ *Server) { p.Set(f) },
		end:   func(p *faultproxy.Proxy, _ *Server) { p.Heal() },
	}
}

var outages = []outage{
	network("refused", true, faultproxy.Fault{Refuse: true}),
	network("silent", true, faultproxy.Fault{Silent: true}),
	network("half open", true, faultproxy.Fault{Mute: true}),
	network("connections dead", false, faultproxy.Fault{Dead: true}), // new ones work, and may be opened at once
	network("reset in a reply", true, faultproxy.Fault{Cut: 5}),
	network("5 ms slow", false, faultproxy.Fault{Delay: 5 * time.Millisecond}),
	network("50 ms slow", true, faultproxy.Fault{Delay: 50 * time.Millisecond}),
	network("1 s slow", true, faultproxy.Fault{Delay: time.Second}),
	network("0 to 200 ms slow", false, faultproxy.Fault{Jitter: 200 * time.Millisecond}),
	network("1 KB a second", false, faultproxy.Fault{Rate: 1000}),
	network("byte by byte", false, faultproxy.Fault{Slice: true}),
	{
		name: "paused", away: true,
		begin: func(_ *faultproxy.Proxy, s *Server) { s.Pause() },
		end:   func(_ *faultproxy.Proxy, s *Server) { s.Resume() },
	},
	{
		name: "killed", away: true, forgets: true,
		begin: func(_ *faultproxy.Proxy, s *Server) { s.Kill() },
		end:   func(_ *faultproxy.Proxy, s *Server) { s.Restart() },
	},
}

const (
	atOnce  = 4 // outages that run at the same time
	callers = 2 // per fail mode
	limit   = 150
	pace    = 10 * time.Millisecond
	patient = 90 * time.Second
)

// modes lists the fail modes with their decisions.
var modes = []struct {
	mode   sluice.FailMode
	source sluice.Source
}{
	{sluice.FailOpen, sluice.SourceFailOpen}, {sluice.FailClosed, sluice.SourceFailClosed}, {sluice.FailLocal, sluice.SourceFailLocal},
}

// Run runs all outages.
func Run(t *testing.T, h Harness) {
	var all sync.WaitGroup
	places := make(chan struct{}, atOnce)
	shared := h.Start(t)
	for _, o := range outages {
		server := shared
		if o.name == "paused" || o.name == "killed" {
			server = h.Start(t)
		}
		proxy := faultproxy.Start(t, server.Addr)
		store := h.Open(t, proxy.Addr)
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if err := newTrial(t.Context(), o, store).run(proxy, server, t.Logf); err != nil {
				t.Errorf("%s: %v", o.name, err)
			}
		})
	}
	all.Wait()
}

// phase counts decisions before, during or after an outage, by fail mode.
type phase struct {
	answered, degraded [3]atomic.Int64
}

// trial is one outage under load.
type trial struct {
	outage
	ctx        context.Context
	limiter    *sluice.Limiter
	rules      [3]*sluice.Rule
	phases     [3]phase
	now        atomic.Int32 // current phase
	granted    atomic.Int64 // granted cost of the limit that is counted locally during the outage
	away, back atomic.Int64
	wrong      chan error
}

func newTrial(ctx context.Context, o outage, store sluice.Store) *trial {
	r := &trial{outage: o, ctx: ctx, wrong: make(chan error, 1)}
	for i, m := range modes {
		count := int64(limit)
		if m.mode != sluice.FailLocal {
			count = 1 << 30
		}
		r.rules[i] = sluice.Must(sluice.NewRule(sluice.Rule{
			Name: fmt.Sprint(o.name, " ", i), OnFailure: m.mode, Limit: sluice.Limit{
				Count: count, Window: 24 * time.Hour, Algorithm: sluice.FixedWindow, Align: sluice.AlignFirstRequest,
			},
		}))
	}
	r.limiter = sluice.Must(sluice.NewWithRules(store, nil, sluice.WithEvents(sluice.Events{
		OnShardUnavailable: func(context.Context, int, error) { r.away.Add(1) },
		OnShardRecovered:   func(context.Context, int) { r.back.Add(1) },
	})))
	return r
}

func (r *trial) run(proxy *faultproxy.Proxy, server *Server, logf func(string, ...any)) error {
	ctx, stop := context.WithCancel(r.ctx)
	var load sync.WaitGroup
	for i := range modes {
		for range callers {
			load.Go(func() { r.call(ctx, i) })
		}
	}
	defer load.Wait()
	defer stop()
	if err := r.until("decisions of the store", func(p *phase, i int) bool { return p.answered[i].Load()-p.degraded[i].Load() >= 20 }); err != nil {
		return err
	}
	r.begin(proxy, server)
	r.now.Store(1)
	err := r.until("decisions of the fail mode", func(p *phase, i int) bool {
		return p.answered[i].Load() >= 40 && (!r.outage.away || r.away.Load() > 0 && p.degraded[i].Load() >= 40)
	})
	if err != nil {
		return err
	}
	r.end(proxy, server)
	r.now.Store(2)
	err = r.until("decisions of the store after the outage", func(p *phase, i int) bool {
		return p.answered[i].Load()-p.degraded[i].Load() >= 20 && r.away.Load() == r.back.Load()
	})
	if err != nil {
		return err
	}
	stop()
	load.Wait()
	logf("%-17s unavailable %d times, recovered %d; %d of %d admitted; degraded %s", r.name, r.away.Load(), r.back.Load(), r.granted.Load(), limit, r.shares())
	return r.judge()
}

// shares returns the degraded share of each phase as text.
func (r *trial) shares() (text string) {
	for i := range r.phases {
		var answered, degraded int64
		for m := range modes {
			answered, degraded = answered+r.phases[i].answered[m].Load(), degraded+r.phases[i].degraded[m].Load()
		}
		text += fmt.Sprintf("  %s %d of %d", []string{"before", "during", "after"}[i], degraded, answered)
	}
	return text
}

// judge returns an error if too much was admitted.
func (r *trial) judge() error {
	// At the moment when the store becomes unavailable or recovers, each caller may be admitted quota that another has
	// used.
	most := int64(limit + callers*int(r.away.Load()+1))
	if r.forgets {
		most += limit
	}
	if n := r.granted.Load(); n > most {
		return fmt.Errorf("admitted %d of %d, want at most %d", n, limit, most)
	}
	select {
	case err := <-r.wrong:
		return err
	default:
		return nil
	}
}

// until waits until done returns true for all fail modes.
func (r *trial) until(what string, done func(p *phase, mode int) bool) error {
	late, tick := time.After(patient), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for {
		p, all := &r.phases[r.now.Load()], true
		for i := range modes {
			all = all && done(p, i)
		}
		if all {
			return nil
		}
		select {
		case err := <-r.wrong:
			return err
		case <-late:
			return fmt.Errorf("timeout waiting for %s: unavailable %d times, recovered %d, degraded %s", what, r.away.Load(), r.back.Load(), r.shares())
		case <-tick.C:
		}
	}
}

// call makes calls continuously, at a pace that does not depend on the decisions.
func (r *trial) call(ctx context.Context, mode int) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	takes, out := []sluice.Take{{Rule: r.rules[mode], Key: "k", Cost: 1}}, make([]sluice.Decision, 1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p := &r.phases[r.now.Load()]
		_, err := r.limiter.Decide(r.ctx, takes, out)
		if err == nil {
			err = r.check(mode, &out[0])
		}
		if err != nil {
			select {
			case r.wrong <- fmt.Errorf("on failure %v: %w", modes[mode].source, err):
			default:
			}
			return
		}
		p.answered[mode].Add(1)
		if out[0].Source.Degraded() {
			p.degraded[mode].Add(1)
		}
	}
}

// check checks one decision.
func (r *trial) check(mode int, d *sluice.Decision) error {
	degraded := d.Source == modes[mode].source
	switch {
	case !degraded && d.Source != sluice.SourceStore && d.Source != sluice.SourceDenyCache:
		return fmt.Errorf("decided by %v", d.Source)
	case degraded && modes[mode].mode == sluice.FailOpen && !d.Allowed:
		return errors.New("denied")
	case degraded && modes[mode].mode == sluice.FailClosed && d.Allowed:
		return errors.New("allowed")
	case modes[mode].mode == sluice.FailLocal && d.Allowed:
		r.granted.Add(d.Granted)
	case modes[mode].mode != sluice.FailLocal && !degraded && !d.Allowed:
		return fmt.Errorf("denied by the store: %+v", *d)
	}
	return nil
}
