package remote

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
)

// Refund gives back what was charged by ops that no At names: back[i] of the key that looks[i] looks at, at most what is
// counted now. It asks the store twice: first for its time, which is not this process'. What is decided from an estimate is
// given back there, last, because that cannot fail.
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

// refundAtStore asks the store what time it is and gives back then.
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

// callWithoutFallback is call for ops that no fail mode can answer.
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

// refundOf is the op that gives back what was charged of a key, at a time of the store's. That the take was as large as the
// limit has a bucket not take off what has flown in since the time was asked for.
func refundOf(look *group.Op, at, back int64) group.Op {
	op := look.By.Op(look.Params, look.Key, look.HashTag, -back)
	op.At, op.Charged = at, min(max(back, look.Params.Limit()), group.MaxCost)
	return op
}

// refund gives back what was charged, at most what the estimate counts now.
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
