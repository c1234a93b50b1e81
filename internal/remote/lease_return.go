package remote

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
)

// startJanitor starts the janitor unless it is running. It runs while there are leases.
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

// returnLeases returns leases that were not used since a time, and reports whether there are others.
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

// returnLate returns quota that was granted to leases after their return, or that Close may have missed, by calls in
// progress at that time.
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

// returnLease returns the balance of a lease that is no longer in the key map. If the call fails, the quota stays
// charged until it expires.
func (en *Engine) returnLease(ctx context.Context, e *lease) {
	e.mu.Lock()
	ended := !e.until.IsZero() && !time.Now().Before(e.until)
	var back []group.Op
	for _, p := range e.parts { // each grant separately, so that other reservations can be settled as before
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
