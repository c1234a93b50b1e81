package remote

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// When a fixed window ends, a busy key is leased for the next one at once and beside the callers, so that they find a
// lease there. Those who come before it is granted wait for it, within the timeout, rather than ask the store
// each for itself. Processes begin up to prefetchSpread apart: the windows of all keys end for all of them at the same
// moment.
//
// The next window's budget cannot be had before it begins: what is charged at the store is charged by its clock. A process
// reckons that it begins a little earlier, by what the last answer took. If the store is asked too early it says how
// long the old window lasts, and is asked again then.

const prefetchSpread = 2 * time.Millisecond

// schedulePrefetch has the next window's lease taken when this one's ends.
func (e *lease) schedulePrefetch(en *Engine) {
	in := time.Until(e.until)
	if e.next == nil {
		e.next = time.AfterFunc(in, func() { en.prefetch(e) })
	} else {
		e.next.Reset(in)
	}
}

// cancelPrefetch has it not taken after all.
func (e *lease) cancelPrefetch() {
	if e.next != nil {
		e.next.Stop()
	}
}

// prefetch leases for the window that begins now, if the key was asked for just before.
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

// finishPrefetch lets those go on who wait.
func (e *lease) finishPrefetch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.fetch)
	e.fetch = nil
}

// startWindow tells that nothing was leased in this window yet, and lets go of what was in the one before.
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

// spend answers the take from the lease if it can, and waits for one that is on its way.
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

// await waits for the next window's lease if it is on its way.
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
