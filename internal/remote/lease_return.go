package remote

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
)

// startJanitor has the janitor run while something is leased.
func (s *leases) startJanitor(en *Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sweeps {
		return
	}
	s.sweeps = en.work.start(func() {
		for {
			if !en.work.sleep(leaseIdleTimeout / 2) {
				return
			}
			if en.returnLeases(context.Background(), time.Now().Add(-leaseIdleTimeout)) {
				continue
			}
			s.mu.Lock()
			s.sweeps = false
			s.mu.Unlock()
			return
		}
	})
}

// returnLeases gives back what was not used since then, and reports whether there are other leases.
func (en *Engine) returnLeases(ctx context.Context, since time.Time) (more bool) {
	var idle []*lease
	more = en.leases.keys.each(nil, "", func(e *lease) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.used.After(since) {
			return true
		}
		idle = append(idle, e)
		return false
	})
	for _, e := range idle {
		en.returnLease(ctx, e)
	}
	return more
}

// returnLate gives back what came into leases that had been given back, or that Close may have missed: of calls that were
// under way then.
func (en *Engine) returnLate(ctx context.Context, held ...*lease) {
	for _, e := range held {
		if e != nil && (en.work.closed.Load() || e.wasReturned()) {
			en.returnLease(context.WithoutCancel(ctx), e)
		}
	}
}

func (e *lease) wasReturned() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.returned
}

// returnLease gives back what is left of a lease that nobody can find any more. If that fails it stays spent until it
// wears off.
func (en *Engine) returnLease(ctx context.Context, e *lease) {
	e.mu.Lock()
	ended := !e.until.IsZero() && !time.Now().Before(e.until)
	var back []group.Op
	for _, p := range e.parts { // each as the grant that it is of, so that reservations of others can be settled as before
		op := e.rule.Op(e.limit, e.name.key, e.hashTag, -p.n)
		op.At, op.Charged, op.Request.Settles = p.at, p.n, e.settles
		back = append(back, op)
	}
	e.void()
	e.returned = true
	e.cancelPrefetch()
	e.mu.Unlock()
	if len(back) == 0 || ended {
		return
	}
	limit := en.leasedLimit(e.limit, en.instanceCount())
	for i := range back {
		back[i].Params = limit
	}
	within, done := en.within(ctx, time.Now())
	defer done()
	_ = en.Store.Apply(within, back, make([]group.Answer, len(back)))
}
