package sluice

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
// With a [Remote] store it is kept warm: after each decision it holds what this process may still admit if the store
// went away now, which is an equal share of what was left. So going over to counting here hands out no fresh budget.
type fallback struct {
	once   sync.Once
	table  *table.Table
	shares sync.Map // sharedLimit → *Limit
	kept   atomic.Int64
	asked  atomic.Int64 // when the newest call was made of which it was told, in nanoseconds
}

// sharedLimit is a limit and among how many processes it is shared.
type sharedLimit struct {
	limit *Limit
	nodes int
}

// maxShares bounds how many shared limits are kept ready; beyond it they are made when needed.
const maxShares = 100_000

func (f *fallback) open() *table.Table {
	f.once.Do(func() { f.table = table.New(table.Config{Bytes: fallbackBytes}) })
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
func (f *fallback) share(l *Limit, n int) *Limit {
	if n <= 1 {
		return l
	}
	k := sharedLimit{l, n}
	if kept, ok := f.shares.Load(k); ok {
		return kept.(*Limit)
	}
	part := l.PartOf(l)
	part.Count, part.Burst, part.Over = ceilDiv(l.Count, n), ceilDiv(l.Burst, n), ceilDiv(l.Over, n)
	built, err := part.Build()
	if err != nil { // a smaller limit than a sound one is sound; if not, the whole one is stricter than none
		built = l
	}
	if f.kept.Add(1) <= maxShares {
		f.shares.Store(k, built)
	}
	return built
}

// shareOf is this process' part of the limit.
func (l *Limiter) shareOf(limit *Limit) *Limit { return l.local.share(limit, l.nodesOf(limit)) }

func ceilDiv(a int64, n int) int64 { return (a + int64(n) - 1) / int64(n) }

// warm notes what a decision of the store left, which was asked at a time. Replies may overtake each other: one to a call
// that is older than another's which was noted already may say that less is left, but not that more is.
func (l *Limiter) warm(takes []Take, out []Decision, asked time.Time) {
	at := time.Now()
	older := !l.local.later(asked)
	now := at.UnixMicro()
	for i := range takes {
		t, d := &takes[i], &out[i]
		if t.Rule.OnFailure != FailLocal || t.Cost == 0 && !d.Blocked {
			continue
		}
		local := l.local.open()
		h := local.Hash(t.Rule.id, t.Key)
		if d.Blocked {
			local.Block(h, now, now+max(d.RetryAfter, time.Microsecond).Microseconds()) // what is left was not said
			continue
		}
		if t.Effective().Algorithm == Concurrency {
			continue // [Slot] counts those that this process holds
		}
		nodes := l.nodesOf(t.Effective())
		if nodes == manyNodes {
			nodes = 1 // once their number is known, a part of this is never more than the part of what was left
		}
		p := l.local.share(t.Effective(), nodes).Params()
		spent := p.Limit() - min(d.Remaining/int64(nodes), p.Limit()) + l.debts.outstanding(t, at)
		spent = min(spent, p.Limit())
		known := t.Rule.Known(&local.Rules).With(p)
		was := local.Take(h, p, now, step.Request{Dry: true, Known: known})
		if older {
			spent = max(spent, p.Limit()-was.Remaining)
		}
		local.Reset(h, p, now)
		if spent > 0 {
			local.Take(h, p, now, step.Request{Cost: spent, Known: known})
		}
		if t.At != 0 && was.Blocked { // a settlement does not say whether the key is blocked
			local.Block(h, now, now+was.RetryAfter)
		}
	}
}

// manyNodes stands for a number of processes that is not known: the part of each is 1.
const manyNodes = 1 << 30

// liveNodes is how many processes share the limits now, as far as is known.
func (l *Limiter) liveNodes() int {
	if l.nodes == nil {
		return 1
	}
	if n := l.nodes(); n > 0 {
		return n
	}
	return manyNodes
}

// nodesSeen is the number of processes when it was last looked at, and the largest before it last became smaller.
type nodesSeen struct {
	now, most int
	since     time.Time
}

// nodesOf is among how many processes the limit is shared while they cannot ask the store. When fewer share it, this
// process' part of a window becomes larger and its count stays: what was counted under the smaller part would seem to have
// left room that others have used. So the larger number stands until such a count has expired.
func (l *Limiter) nodesOf(limit *Limit) int {
	n, seen := l.liveNodes(), l.seen.Load()
	if n == manyNodes {
		return n // nothing is counted by it
	}
	if seen == nil || seen.now != n {
		next := &nodesSeen{now: n}
		if seen != nil {
			next.most, next.since = seen.most, seen.since
			if n < seen.now {
				next.most, next.since = max(seen.now, seen.most), time.Now()
			}
		}
		l.seen.CompareAndSwap(seen, next)
		seen = next
	}
	if n < seen.most && time.Since(seen.since) < 2*limit.Window { // a sliding window counts the one before too
		return seen.most
	}
	return n
}

// WithNodes tells how many processes share the limits. While the store cannot answer, a rule with FailLocal admits an
// equal part of its limit in each, so that together they admit at most limit + (processes − 1). The default is 1: each
// process admits what the store had left when it was last asked.
//
// A function that returns 0 has not read the number yet. Until it has, a process admits 1 for each key and window, and
// nothing of a key that was used in its window.
func WithNodes(f func() int) Option { return func(l *Limiter) { l.nodes = f } }

// fallbackBytes bounds the fallback's memory.
const fallbackBytes = 32 << 20

// fail answers takes by their rules' fail modes. A caller that gave up and a call that makes no sense get the error:
// neither is the store's fault, and a mistake must never fail open.
func (l *Limiter) fail(ctx context.Context, takes []Take, out []Decision, err error) error {
	if errors.Is(err, ErrInvalid) || ctx.Err() != nil {
		return err
	}
	if l.events.StoreFailed != nil {
		l.events.StoreFailed(ctx, err)
	}
	l.failTakes(takes, out)
	return nil
}

func (l *Limiter) failOne(ctx context.Context, t Take, err error) (Decision, error) {
	takes, out := []Take{t}, []Decision{{}}
	if err := l.fail(ctx, takes, out, err); err != nil {
		return Decision{}, err
	}
	l.events.report(ctx, t, out[0])
	return out[0], nil
}

// closedRetry is when a caller denied by FailClosed may ask again: nobody knows when the store will be back.
const closedRetry = time.Second

// failTakes answers takes by their rules' fail modes. Those that are counted here are so all or nothing, as at the store.
func (l *Limiter) failTakes(takes []Take, out []Decision) {
	local, denied := 0, false
	for i := range takes {
		t := &takes[i]
		limit := t.Effective().Params().Limit()
		switch t.Rule.OnFailure {
		case FailOpen:
			out[i] = Decision{Allowed: true, Source: SourceOpen, Limit: limit, Granted: t.Cost}
		case FailClosed:
			out[i] = Decision{Source: SourceClosed, Limit: limit, RetryAfter: closedRetry}
			denied = denied || !t.Rule.Shadow && t.Cost != 0
		default:
			local++
		}
	}
	if local > 0 {
		l.failLocal(takes, out, denied)
	}
}

// failLocal answers those takes that are counted in this process. If another take of the call is denied already, only
// those are charged that charge refusals.
func (l *Limiter) failLocal(takes []Take, out []Decision, denied bool) {
	ops, at := make([]group.Op, 0, len(takes)), make([]int, 0, len(takes))
	for i := range takes {
		if takes[i].Rule.OnFailure != FailLocal {
			continue
		}
		part := takes[i]
		part.Limit = l.shareOf(part.Effective())
		if part.Rule.Accuracy == Lease && part.Min > 0 {
			part.Cost, part.Min = part.Min, 0 // what a lease adds for later is only to be had from the store
		}
		op, err := part.Op()
		if err != nil { // the store has checked the take already
			out[i] = Decision{Source: SourceClosed, Limit: part.Limit.Params().Limit(), RetryAfter: closedRetry}
			continue
		}
		op.Request.Dry = denied && !op.Request.Charge
		op.Request.Known = part.Rule.Known(&l.local.open().Rules).With(op.Params)
		ops, at = append(ops, op), append(at, i)
	}
	now := time.Now()
	answers := make([]step.Answer, len(ops))
	l.local.open().Apply(now.UnixMicro(), ops, answers)
	for j, i := range at {
		t, op := &takes[i], &ops[j]
		d := Answered(op.Params, &answers[j])
		d.Source = SourceLocal
		if op.Request.Dry {
			d.Remaining, d.Granted = d.Remaining+d.Granted, 0
		}
		if d.Never && t.Cost <= t.Effective().Params().Limit() { // too much for this process' part, but not for the limit
			d.Never, d.RetryAfter = false, closedRetry
		}
		if l.guard != nil && t.Cost > 0 && d.Granted > 0 && t.Effective().Algorithm != Concurrency {
			l.debts.add(t, d.Granted, now.Add(d.ResetAfter))
			l.payLater()
		}
		out[i] = d
	}
}
