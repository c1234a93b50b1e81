package remote

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
	"github.com/sluiceproject/sluice/internal/table"
)

// fallback counts in this process while the store cannot answer. It is made when first needed.
//
// With a remote store it is kept warm: after each decision it holds what this process may still admit if the store
// went away now, which is an equal share of what was left. So going over to counting here hands out no fresh budget.
type fallback struct {
	once   sync.Once
	table  *table.Table
	shares parts
	asked  atomic.Int64 // when the newest call was made of which it was told, in nanoseconds
	seen   atomic.Pointer[instancesSeen]
}

func (f *fallback) open() *table.Table {
	f.once.Do(func() { f.table = table.New(table.Config{MaxBytes: fallbackBytes}) })
	return f.table
}

// later notes that a call was made at a time, and reports whether none of which it was told was made later.
func (f *fallback) later(asked time.Time) bool {
	for at := asked.UnixNano(); ; {
		newest := f.asked.Load()
		if at < newest {
			return false
		}
		if f.asked.CompareAndSwap(newest, at) {
			return true
		}
	}
}

// share is an equal part of the limit, rounded up: n processes together admit at most n-1 more than it.
func (f *fallback) share(p *step.Params, n int) *step.Params {
	if n <= 1 {
		return p
	}
	return f.shares.of(partKey{p, n}, func() *step.Params {
		return p.Part(ceilDiv(p.Count, n), ceilDiv(p.Burst, n), ceilDiv(p.SoftExcess, n))
	})
}

// shareOf is this process' part of the limit.
func (en *Engine) shareOf(p *step.Params) *step.Params {
	return en.fallback.share(p, en.instancesOf(p))
}

func ceilDiv(a int64, n int) int64 { return (a + int64(n) - 1) / int64(n) }

// updateFallback notes what a decision of the store left, which was asked at a time. Replies may overtake each other: one to a call
// that is older than another's which was noted already may say that less is left, but not that more is.
func (en *Engine) updateFallback(takes []group.Op, out []group.Answer, asked time.Time) {
	at := time.Now()
	older := !en.fallback.later(asked)
	now := at.UnixMicro()
	for i := range takes {
		t, d := &takes[i], &out[i]
		if t.By.OnFailure != group.FailLocal || t.Request.Cost == 0 && !d.Blocked {
			continue
		}
		local := en.fallback.open()
		h := local.Hash(t.Rule, t.Key)
		if d.Blocked {
			local.Block(h, now, now+max(d.RetryAfter, time.Microsecond).Microseconds()) // what is left was not said
			continue
		}
		if t.Params.Kind == step.Permits {
			continue // permits count those that this process holds
		}
		instances := en.instancesOf(t.Params)
		if instances == manyInstances {
			instances = 1 // once their number is known, a part of this is never more than the part of what was left
		}
		p := en.fallback.share(t.Params, instances)
		spent := p.Limit() - min(d.Remaining/int64(instances), p.Limit())
		if en.unreported.keys.Load() > 0 {
			spent += en.unreported.pending(t, at)
		}
		over := max(0, spent-p.Limit())
		spent -= over
		known := t.By.Known(&local.Rules).With(p)
		was := local.Take(h, p, now, step.Request{DryRun: true, Known: known})
		switch before := p.Limit() - was.Remaining; {
		case en.breakerOf(t).ramping(): // others may not have reported what they admitted
			spent = max(spent, min(before+max(0, d.Granted), p.Limit()))
		case older:
			spent = max(spent, before)
		}
		local.Reset(h, p, now)
		switch {
		case p.HasInitial: // a new bucket would hold less than a full one
			local.Put(h, p, now, p.Spent(now, spent))
		case spent > 0:
			local.Take(h, p, now, step.Request{Cost: spent, Known: known})
		}
		if over > 0 && refills(p) { // it has admitted more than flows in, and lets that pass first
			late := t.By.Op(p, t.Key, t.HashTag, over)
			late.At, late.Request.Known = now, known
			local.Apply(now, []group.Op{late}, make([]step.Answer, 1))
		}
		if t.At != 0 && was.Blocked { // a settlement does not say whether the key is blocked
			local.Block(h, now, now+was.RetryAfter)
		}
	}
}

// manyInstances stands for a number of processes that is not known: the part of each is 1.
const manyInstances = 1 << 30

// instanceCount is how many processes share the limits now, as far as is known.
func (en *Engine) instanceCount() int {
	if en.Instances == nil {
		return 1
	}
	if n := en.Instances(); n > 0 {
		return n
	}
	return manyInstances
}

// instancesSeen is the number of processes when it was last looked at, and the largest before it last became smaller.
type instancesSeen struct {
	now, most int
	since     time.Time
}

// instancesOf is among how many processes the limit is shared while they cannot ask the store. When fewer share it, this
// process' part of a window becomes larger and its count stays: what was counted under the smaller part would seem to have
// left room that others have used. So the larger number stands until such a count has expired.
func (en *Engine) instancesOf(limit *step.Params) int {
	n, seen := en.instanceCount(), en.fallback.seen.Load()
	if n == manyInstances {
		return n // nothing is counted by it
	}
	if seen == nil || seen.now != n {
		next := &instancesSeen{now: n}
		if seen != nil {
			next.most, next.since = seen.most, seen.since
			if n < seen.now {
				next.most, next.since = max(seen.now, seen.most), time.Now()
			}
		}
		en.fallback.seen.CompareAndSwap(seen, next)
		seen = next
	}
	if n < seen.most && time.Since(seen.since) < 2*window(limit) { // a sliding window counts the one before too
		return seen.most
	}
	return n
}

// countsFor is for how long something counts at the store that was admitted now. A bucket there may be full later than this
// process' part of it, because others use it.
func countsFor(limit *step.Params, reset time.Duration) time.Duration {
	if !refills(limit) {
		return reset
	}
	fill := time.Duration(float64(limit.Limit()) / rate(limit) * float64(time.Second))
	return max(reset, 2*fill)
}

// fallbackBytes bounds the fallback's memory.
const fallbackBytes = 32 << 20

// Fail answers takes by their rules' fail modes. A caller that gave up and a call that makes no sense get the error:
// neither is the store's fault, and a mistake must never fail open.
func (en *Engine) Fail(ctx context.Context, takes []group.Op, out []group.Answer, err error) error {
	if errors.Is(err, group.ErrInvalid) || ctx.Err() != nil {
		return err
	}
	if en.Events.OnStoreError != nil {
		en.Events.OnStoreError(ctx, err)
	}
	en.failTakes(takes, out)
	return nil
}

// failClosedRetryAfter is when a caller denied by FailClosed may ask again: nobody knows when the store will be back.
const failClosedRetryAfter = time.Second

// failTakes answers takes by their rules' fail modes. Those that are counted here are so all or nothing, as at the store.
func (en *Engine) failTakes(takes []group.Op, out []group.Answer) {
	local, denied := 0, false
	for i := range takes {
		t := &takes[i]
		limit := t.Params.Limit()
		switch t.By.OnFailure {
		case group.FailOpen:
			out[i] = group.Answer{Allowed: true, Source: group.SourceFailOpen, Limit: limit, Granted: t.Request.Cost}
		case group.FailClosed:
			out[i] = group.Answer{Source: group.SourceFailClosed, Limit: limit, RetryAfter: failClosedRetryAfter}
			denied = denied || !t.By.Shadow && t.Request.Cost != 0
		default:
			local++
		}
	}
	if local > 0 {
		en.failLocal(takes, out, denied)
	}
}

// failLocal answers those takes that are counted in this process. If another take of the call is denied already, only
// those are charged that charge refusals.
func (en *Engine) failLocal(takes []group.Op, out []group.Answer, denied bool) {
	ops, at := make([]group.Op, 0, len(takes)), make([]int, 0, len(takes))
	for i := range takes {
		if takes[i].By.OnFailure != group.FailLocal {
			continue
		}
		op := takes[i]
		op.Params = en.shareOf(op.Params)
		if r := &op.Request; op.By.Accuracy == group.AccuracyLease && r.Min > 0 {
			r.Cost, r.Min = r.Min, 0 // what a lease adds for later is only to be had from the store
		}
		op.Request.DryRun = denied && !op.Request.Charge
		op.Request.Known = op.By.Known(&en.fallback.open().Rules).With(op.Params)
		ops, at = append(ops, op), append(at, i)
	}
	now := time.Now()
	answers := make([]step.Answer, len(ops))
	en.fallback.open().Apply(now.UnixMicro(), ops, answers)
	for j, i := range at {
		t, op := &takes[i], &ops[j]
		if op.Request.DryRun && answers[j].Allowed { // as the store answers it: with what there is without it
			look, found := *op, make([]step.Answer, 1)
			look.Request, look.At = op.Look(), 0
			en.fallback.open().Apply(now.UnixMicro(), []group.Op{look}, found)
			answers[j] = group.Unspent(found[0], answers[j].At)
		}
		d := group.AnswerOf(op.Params, &answers[j])
		d.Source = group.SourceFailLocal
		if d.Never && t.Request.Cost <= t.Params.Limit() { // too much for this process' part, but not for the limit
			d.Never, d.RetryAfter = false, failClosedRetryAfter
		}
		if en.IsRemote() && t.Request.Cost > 0 && d.Granted > 0 && t.Params.Kind != step.Permits {
			en.unreported.add(t, op.Params, d.Granted, now.Add(countsFor(t.Params, d.ResetAfter)))
			en.reportLater()
		}
		out[i] = d
	}
}
