package remote

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
)

// Refund refunds charges without their receipts: back[i] of the key of looks[i], at most its current usage. It calls
// the store twice, first to read the store clock. Estimates are refunded last, because that cannot fail.
func (en *Engine) Refund(ctx context.Context, looks []group.Op, back []int64, out []group.Answer) error {
	if len(looks) == 0 {
		return nil
	}
	var estimated []int
	var store takeSubset
	for i := range looks {
		if en.IsRemote() && canUseEstimate(&looks[i]) && en.estimates.keys.find(looks[i].By, looks[i].Key) != nil && !en.work.closed.Load() {
			estimated = append(estimated, i)
		} else {
			store.add(looks, i)
		}
	}
	if err := en.refundAtStore(ctx, &store, back, out); err != nil {
		return err
	}
	var late takeSubset
	for _, i := range estimated {
		op := refundOf(&looks[i], 0, back[i])
		if e := en.estimates.keys.find(op.By, op.Key); e == nil || !e.refund(en, &op, en.now(), &out[i]) {
			late.add(looks, i)
		}
	}
	return en.refundAtStore(ctx, &late, back, out)
}

// refundAtStore reads the store clock and then refunds.
func (en *Engine) refundAtStore(ctx context.Context, p *takeSubset, back []int64, out []group.Answer) error {
	if len(p.takes) == 0 {
		return nil
	}
	p.out = make([]group.Answer, len(p.takes))
	if _, err := en.callWithoutFallback(ctx, p.takes, p.out, time.Now()); err != nil {
		return err
	}
	for j, i := range p.indexes {
		p.takes[j] = refundOf(&p.takes[j], p.out[j].At, back[i])
	}
	began := time.Now()
	reports, err := en.callWithoutFallback(ctx, p.takes, p.out, began)
	if err != nil {
		return err
	}
	p.put(out)
	if !en.IsRemote() {
		return nil
	}
	for j := range p.takes {
		en.denyCache.invalidate(p.takes[j].By, p.takes[j].Key)
	}
	if reports == en.unreported.reports.Load() {
		en.updateFallback(p.takes, p.out, began)
	}
	return nil
}

// callWithoutFallback is call for ops without a fail mode.
func (en *Engine) callWithoutFallback(ctx context.Context, ops []group.Op, out []group.Answer, began time.Time) (reports int64, err error) {
	if !en.IsRemote() {
		return 0, en.Store.Apply(ctx, ops, out)
	}
	for i := range ops {
		if !en.work.closed.Load() && !en.shardAvailable(ctx, &ops[i], began) {
			return 0, errBreakerOpen
		}
	}
	return en.call(ctx, ops, out, began)
}

// refundOf returns the op that refunds usage of a key at a time of the store clock. Charged is at least the limit, so
// that a bucket does not deduct its refill since the clock was read.
func refundOf(look *group.Op, at, back int64) group.Op {
	op := look.By.Op(look.Params, look.Key, look.HashTag, -back)
	op.At, op.Charged = at, min(max(back, look.Params.Limit()), group.MaxCost)
	return op
}

// refund refunds usage in the estimate, at most its current usage. It reports whether the estimate could be used.
func (e *estimate) refund(en *Engine, t *group.Op, now time.Time, d *group.Answer) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, ready := e.prepare(en, t.Params, now)
	if !ready {
		return false
	}
	t.At = at
	*d = e.adjust(t, at)
	return true
}
