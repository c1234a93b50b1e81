package remote

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// When a fixed window ends, the next window's lease of a busy key is prefetched in the background, so that callers find
// a lease. Callers that arrive before it is granted wait for it, within the timeout, instead of each calling the store.
// Instances start within prefetchSpread, because the windows of all keys end at the same time for all of them.
//
// The next window's quota is not available before the window begins by the store clock. An instance expects the
// beginning slightly too early, by the duration of the last call. If it calls the store too early, the reply contains
// the remaining time of the old window, and it calls again after that.

const prefetchSpread = 2 * time.Millisecond

// schedulePrefetch schedules the next window's lease for the end of the current one.
func (e *lease) schedulePrefetch(en *Engine) {
	in := time.Until(e.until)
	if e.next == nil {
		e.next = time.AfterFunc(in, func() { en.prefetch(e) })
	} else {
		e.next.Reset(in)
	}
}

// cancelPrefetch cancels the scheduled prefetch.
func (e *lease) cancelPrefetch() {
	if e.next != nil {
		e.next.Stop()
	}
}

// prefetch leases for the window that begins now, if the key was used shortly before.
func (en *Engine) prefetch(e *lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if e.fetch != nil || now.Before(e.until) || now.Sub(e.used) > leaseAhead || max(e.demand, e.spent) == 0 {
		return
	}
	rule, limit := e.rule, e.limit
	e.fetch = make(chan struct{})
	started := en.work.start(func() {
		defer e.finishPrefetch()
		if en.work.sleep(rand.N(prefetchSpread)) && e.startWindow(limit) {
			en.leaseNow(context.Background(), e, rule, limit)
		}
	})
	if !started {
		close(e.fetch)
		e.fetch = nil
	}
}

// finishPrefetch resumes the callers that wait for the prefetch.
func (e *lease) finishPrefetch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.fetch)
	e.fetch = nil
}

// startWindow discards the lease of the previous window. It reports whether nothing was leased in the current one yet.
func (e *lease) startWindow(limit *step.Params) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit != limit || time.Now().Before(e.until) {
		return false
	}
	e.void()
	e.until, e.at, e.from = time.Time{}, 0, 0
	return true
}

// spend decides the take from the lease if possible, waits for a prefetch in progress, and reports whether it decided.
func (en *Engine) spend(ctx context.Context, e *lease, t *group.Op, now time.Time, d *group.Answer) bool {
	decided, low := e.spend(t, now, d, false)
	if !decided && en.await(ctx, e) {
		decided, low = e.spend(t, time.Now(), d, true)
	}
	if low {
		en.refill(ctx, e, t.By, t.Params)
	}
	return decided
}

// await waits for a prefetch of the next window's lease, and reports whether there was one.
func (en *Engine) await(ctx context.Context, e *lease) bool {
	e.mu.Lock()
	fetch := e.fetch
	e.mu.Unlock()
	if fetch == nil {
		return false
	}
	select {
	case <-fetch:
	case <-ctx.Done():
	case <-time.After(en.Timeout):
	}
	return true
}
