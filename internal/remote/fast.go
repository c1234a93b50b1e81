package remote

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// FastAnswer is a decision about all of the cost, without a delay. It has four fields because larger structs are not
// passed in registers.
type FastAnswer struct {
	At, Remaining int64
	RetryAfter    time.Duration // 0: allowed
	ResetAfter    time.Duration
}

// TakeFast decides one take under the rule's own limit from a lease or an estimate, if possible. Otherwise it does
// nothing and returns false.
func (en *Engine) TakeFast(ctx context.Context, r *group.Rule, p *step.Params, key string, cost int64) (a FastAnswer, ok bool) {
	if r.ChargeDenied || en.work.closed.Load() {
		return a, false
	}
	if r.Accuracy == group.AccuracyEventual {
		if e := en.estimates.keys.find(r, key); e != nil {
			return e.takeFast(en, p, cost)
		}
		return a, false
	}
	if r.Accuracy != group.AccuracyLease || !en.mayHold(p) {
		return a, false
	}
	e := en.leases.keys.find(r, key)
	if e == nil {
		return a, false
	}
	a, ok, low := e.takeFast(p, cost, en.now())
	if low {
		en.refill(ctx, e, r, p)
	}
	return a, ok
}

func (e *estimate) takeFast(en *Engine, p *step.Params, cost int64) (a FastAnswer, ok bool) {
	now := en.now()
	e.mu.Lock()
	if at, ready := e.prepare(en, p, now); ready {
		a, ok = e.takePlain(cost, at)
	}
	e.mu.Unlock()
	return a, ok
}

func (e *lease) takeFast(p *step.Params, cost int64, now time.Time) (a FastAnswer, ok, low bool) {
	e.mu.Lock()
	if e.limit == p && e.balance >= cost && (e.until.IsZero() || now.Before(e.until)) {
		e.recordDemand(cost, now)
		a, low = e.spendBalance(cost, now)
		ok = true
	}
	e.mu.Unlock()
	return a, ok, low
}
