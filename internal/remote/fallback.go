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

// fallback counts locally while the store is unavailable. It is created when first needed. After every store decision
// it is updated to this instance's share of the remaining quota, so that an outage does not grant a fresh quota.
type fallback struct {
	once   sync.Once
	table  *table.Table
	shares parts
	asked  atomic.Int64 // start time of the newest call that updated it, in nanoseconds
	seen   atomic.Pointer[instancesSeen]
}

func (f *fallback) open() *table.Table {
	f.once.Do(func() { f.table = table.New(table.Config{MaxBytes: fallbackBytes}) })
	return f.table
}

// later records the start time of a call and reports whether no later call has updated the fallback.
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

// share returns an equal part of the limit, rounded up: n instances together admit at most limit + n − 1.
func (f *fallback) share(p *step.Params, n int) *step.Params {
	if n <= 1 {
		return p
	}
	return f.shares.of(partKey{p, n}, func() *step.Params {
		return p.Part(ceilDiv(p.Count, n), ceilDiv(p.Burst, n), ceilDiv(p.SoftExcess, n))
	})
}

// shareOf returns this instance's share of the limit.
func (en *Engine) shareOf(p *step.Params) *step.Params {
	return en.fallback.share(p, en.instancesOf(p))
}

func ceilDiv(a int64, n int) int64 { return (a + int64(n) - 1) / int64(n) }

// updateFallback updates the fallback from decisions of a store call that started at asked. Replies may arrive out of
// order: a reply to an older call may lower the remaining quota, but not raise it.
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
			local.Block(h, now, now+max(d.RetryAfter, time.Microsecond).Microseconds()) // a block's decision has no remaining quota
			continue
		}
		if t.Params.Kind == step.Permits {
			continue // LocalPermit counts the permits of this instance
		}
		instances := en.instancesOf(t.Params)
		if instances == manyInstances {
			instances = 1 // a share of this, once the number is known, is never more than the share of the remaining quota
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
		case en.breakerOf(t).ramping(): // other instances may have unreported usage
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
		if over > 0 && refills(p) { // it has admitted more than its share refills, which has to be refilled first
			late := t.By.Op(p, t.Key, t.HashTag, over)
			late.At, late.Request.Known = now, known
			local.Apply(now, []group.Op{late}, make([]step.Answer, 1))
		}
		if t.At != 0 && was.Blocked { // a settlement's decision does not contain the block
			local.Block(h, now, now+was.RetryAfter)
		}
	}
}

// manyInstances represents an unknown number of instances: the share of each is 1.
const manyInstances = 1 << 30

// instanceCount returns the number of instances that share the limits, or manyInstances.
func (en *Engine) instanceCount() int {
	if en.Instances == nil {
		return 1
	}
	if n := en.Instances(); n > 0 {
		return n
	}
	return manyInstances
}

// instancesSeen is the last number of instances, and the largest number before its last decrease.
type instancesSeen struct {
	now, most int
	since     time.Time
}

// instancesOf returns the number of instances among which the limit is shared in local fallback. When the number
// decreases, this instance's share of a window grows but its count stays: usage counted under the smaller share would
// seem to leave quota that others have used. So the larger number applies until such a count has expired.
func (en *Engine) instancesOf(limit *step.Params) int {
	n, seen := en.instanceCount(), en.fallback.seen.Load()
	if n == manyInstances {
		return n // not used for counting
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
	if n < seen.most && time.Since(seen.since) < 2*window(limit) { // a sliding window also counts the previous window
		return seen.most
	}
	return n
}

// countsFor returns how long usage admitted now counts at the store. A bucket there may become full later than this
// instance's share of it, because others use it.
func countsFor(limit *step.Params, reset time.Duration) time.Duration {
	if !refills(limit) {
		return reset
	}
	fill := time.Duration(float64(limit.Limit()) / rate(limit) * float64(time.Second))
	return max(reset, 2*fill)
}

// fallbackBytes is the memory limit of the fallback.
const fallbackBytes = 32 << 20

// Fail decides takes by their rules' fail modes. It returns err for a cancelled caller or an invalid call: neither is a
// failure of the store, and an invalid call must never fail open.
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

// failClosedRetryAfter is the RetryAfter of denials by FailClosed, because the recovery time of the store is unknown.
const failClosedRetryAfter = time.Second

// failTakes decides takes by their rules' fail modes. Those that are counted locally are charged all or nothing, as at
// the store.
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

// failLocal decides the takes that are counted locally. If denied, another take of the call is already denied, and only
// takes of ChargeDenied rules are charged.
func (en *Engine) failLocal(takes []group.Op, out []group.Answer, denied bool) {
	ops, at := make([]group.Op, 0, len(takes)), make([]int, 0, len(takes))
	for i := range takes {
		if takes[i].By.OnFailure != group.FailLocal {
			continue
		}
		op := takes[i]
		op.Params = en.shareOf(op.Params)
		if r := &op.Request; op.By.Accuracy == group.AccuracyLease && r.Min > 0 {
			r.Cost, r.Min = r.Min, 0 // the prefetched part of a lease comes only from the store
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
		if op.Request.DryRun && answers[j].Allowed { // like the store, report the state without the charge
			look, found := *op, make([]step.Answer, 1)
			look.Request, look.At = op.Look(), 0
			en.fallback.open().Apply(now.UnixMicro(), []group.Op{look}, found)
			answers[j] = group.Unspent(found[0], answers[j].At)
		}
		d := group.AnswerOf(op.Params, &answers[j])
		d.Source = group.SourceFailLocal
		if d.Never && t.Request.Cost <= t.Params.Limit() { // exceeds this instance's share, but not the limit
			d.Never, d.RetryAfter = false, failClosedRetryAfter
		}
		if en.IsRemote() && t.Request.Cost > 0 && d.Granted > 0 && t.Params.Kind != step.Permits {
			en.unreported.add(t, op.Params, d.Granted, now.Add(countsFor(t.Params, d.ResetAfter)))
			en.reportLater()
		}
		out[i] = d
	}
}
