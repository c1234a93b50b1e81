package remote

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// leases holds the leases for rules with AccuracyLease: an instance takes a part of a key's quota from the store at
// once and uses it in memory. Leased quota is already charged at the store, so that all instances together never admit
// more than the limit, even if some crash or lose their connection. Unused quota of a lease is unavailable to others
// for a while.
//
// A fixed window's lease ends with the window. Its end is calculated from the start of the store call, not from the
// reply, so that clocks need not agree and a slow reply errs on the safe side.
//
// A bucket's lease could be used in addition to a full bucket. So the store's bucket is smaller by the amount that all
// instances together may hold. That needs their number, see Config.Instances; without it buckets are not leased.
//
// The size of a lease follows the demand: about the usage of the key in the last 250 ms, at most half of an equal share
// of the remaining quota. Rarely used keys are not leased.
type leases struct {
	keys   keyMap[lease]
	limits parts // limits of buckets at the store

	mu     sync.Mutex // guards sweeps
	sweeps bool       // the janitor runs
}

const (
	leaseAhead       = 250 * time.Millisecond // duration of demand that a lease covers
	leaseIdleTimeout = time.Second            // unused leases are returned after this time
	// drainedBackoff is how long an empty bucket is not leased, so that some quota accumulates. Takes in the meantime
	// are denied: otherwise a bucket that is always empty would cause a store call for every unit.
	drainedBackoff = 50 * time.Millisecond
)

// lease is the part of one key's quota that this instance holds.
type lease struct {
	name    bucketID
	hashTag string

	mu             sync.Mutex // guards the fields below
	rule           *group.Rule
	limit          *step.Params // limit of the lease; another limit starts a new lease
	balance        int64
	until          time.Time // end of a window's lease; zero before the first grant, and for a bucket
	at             int64     // Answer.At of the last grant; 0 before the first grant of the window
	from           int64     // Answer.At of the first grant of the lease or the window
	parts          []leased  // grants that make up the balance, oldest first; uses room
	room           [maxParts + 1]leased
	settles        bool      // it decides reservations, so that the store must keep marks for its grants
	storeRemaining int64     // remaining quota at the store, at the last call
	asked          time.Time // time of that call
	reset          time.Time // time at which the key is fully reset
	retryAt        time.Time // no call for more before this time
	denied         int64     // cost that the store denied last
	retry          time.Time // time at which the store would allow that cost

	next  *time.Timer   // prefetches for the next window
	fetch chan struct{} // closed when the prefetch has ended

	used      time.Time // time of the last use
	spent     int64     // usage since measured
	measured  time.Time
	demand    int64 // usage in the last leaseAhead
	refilling bool
	returned  bool // removed from the key map
}

func newLease(name bucketID, tag string) *lease {
	e := &lease{name: name, hashTag: tag}
	e.parts = e.room[:0] // in the same struct as the balance, for memory locality
	return e
}

// leased is the unused part of one grant of the store.
type leased struct{ at, n int64 }

// maxParts is the maximum number of separate grants. Older ones are merged, with the time of the oldest, which allows
// less to be refunded.
const maxParts = 8

// add adds a grant to the balance.
func (e *lease) add(at, n int64) {
	if n <= 0 {
		return
	}
	e.balance += n
	i := len(e.parts)
	for i > 0 && e.parts[i-1].at > at {
		i--
	}
	if i > 0 && e.parts[i-1].at == at {
		e.parts[i-1].n += n
		return
	}
	e.parts = slices.Insert(e.parts, i, leased{at, n})
	if len(e.parts) > maxParts {
		e.parts[1] = leased{e.parts[0].at, e.parts[0].n + e.parts[1].n}
		e.parts = slices.Delete(e.parts, 0, 1)
	}
}

// remove removes n from the balance, oldest grants first, and returns the time of the oldest grant used.
func (e *lease) remove(n int64) (at int64) {
	e.balance -= n
	at = e.at
	for i := 0; n > 0 && len(e.parts) > 0; i++ {
		p := &e.parts[0]
		if i == 0 {
			at = p.at
		}
		if p.n > n {
			p.n -= n
			return at
		}
		n -= p.n
		e.parts = slices.Delete(e.parts, 0, 1)
	}
	return at
}

// void discards the balance.
func (e *lease) void() { e.balance, e.parts = 0, e.parts[:0] }

// canLease reports whether the take may be decided from a lease.
func (en *Engine) canLease(t *group.Op) bool {
	r := &t.Request
	if t.By.Accuracy != group.AccuracyLease || r.Cost <= 0 || t.At != 0 || t.ID != 0 || r.Min != 0 || r.MaxDelay != 0 || t.By.ChargeDenied {
		return false
	}
	return CanLease(t.Params) && en.mayHold(t.Params)
}

// mayHold reports whether this instance may hold a lease of the limit now.
func (en *Engine) mayHold(p *step.Params) bool {
	return p.Kind == step.Window || en.Instances != nil && maxLeasedAmount(p, en.instanceCount()) > 1
}

// CanLease reports whether limits with these numbers can be leased: windows that are not soft, and buckets with
// continuous refill.
func CanLease(p *step.Params) bool {
	return p.Kind == step.Window && p.SoftExcess == 0 || p.Kind == step.Bucket && !p.Queue && !p.HasInitial
}

// maxLeasedAmount returns the maximum lease of one instance. All instances together hold at most 50 % of a bucket.
func maxLeasedAmount(p *step.Params, instances int) int64 {
	if p.Kind == step.Window {
		return p.Count
	}
	return p.Burst / 2 / int64(instances)
}

// leasedLimit returns the limit at the store: a bucket is smaller by the amount that all instances may lease.
func (en *Engine) leasedLimit(p *step.Params, instances int) *step.Params {
	if p.Kind == step.Window {
		return p
	}
	return en.leases.limits.of(partKey{p, instances}, func() *step.Params {
		return p.Part(p.Count, p.Burst-maxLeasedAmount(p, instances)*int64(instances), p.SoftExcess)
	})
}

// getOrCreate returns the key's lease. It creates one if there is room, and otherwise returns nil.
func (s *leases) getOrCreate(t *group.Op) *lease {
	if e := s.keys.find(t.By, t.Key); e != nil {
		return e
	}
	return s.keys.add(t, newLease)
}

// drop discards the lease of a key that was reset or blocked.
func (s *leases) drop(r *group.Rule, key string) {
	s.keys.each(r, key, func(e *lease) bool { return !e.drop() })
}

// dropRule is like drop for all keys of a rule.
func (s *leases) dropRule(r *group.Rule) {
	s.keys.each(nil, "", func(e *lease) bool { return e.name.rule != r.Name || !e.drop() })
}

// drop stops the lease's background work. It reports whether it did, which is always true.
func (e *lease) drop() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancelPrefetch()
	return true
}

// reserves reports whether the lease decides reservations.
func (e *lease) reserves() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.settles
}

// recordDemand updates the measured demand.
func (e *lease) recordDemand(cost int64, now time.Time) {
	if elapsed := now.Sub(e.measured); elapsed >= leaseAhead {
		e.demand = int64(float64(e.spent) * float64(leaseAhead) / float64(elapsed))
		e.spent, e.measured = 0, now
	}
	e.spent += cost
	e.used = now
}

// spend takes the cost from the lease if its balance suffices, or denies it if the store had no quota recently. low
// reports whether it is time to lease more. again is set on a second attempt, whose demand is already recorded.
func (e *lease) spend(t *group.Op, now time.Time, d *group.Answer, again bool) (decided, low bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !again {
		e.recordDemand(t.Request.Cost, now)
	}
	limit := t.Params
	if e.limit != limit || !e.until.IsZero() && !now.Before(e.until) {
		e.void()
		e.rule, e.limit, e.until, e.at, e.from, e.retryAt = t.By, limit, time.Time{}, 0, 0, time.Time{}
	}
	if e.balance < t.Request.Cost {
		wait := e.retryAt.Sub(now)
		if wait <= 0 || t.By.Shadow || t.Request.Cost > limit.Limit() { // the store decides that it exceeds the limit
			return false, false
		}
		if t.Request.Cost == e.denied {
			wait = max(wait, e.retry.Sub(now))
		}
		*d = group.Answer{
			Source: group.SourceLease, Limit: limit.Limit(), Remaining: min(e.balance, t.Request.Cost-1),
			RetryAfter: wait, ResetAfter: max(0, e.reset.Sub(now)),
		}
		return true, false
	}
	e.settles = e.settles || t.Request.Settles
	a, low := e.spendBalance(t.Request.Cost, now)
	*d = group.Answer{
		Allowed: true, Source: group.SourceLease, Limit: limit.Limit(), Granted: t.Request.Cost, At: a.At,
		Remaining: a.Remaining, ResetAfter: a.ResetAfter,
	}
	return true, low
}

// spendBalance takes a cost from the balance, which must suffice. The take is settled or refunded in the lease, or at
// the store, which granted the lease.
func (e *lease) spendBalance(cost int64, now time.Time) (a FastAnswer, low bool) {
	a.At = e.remove(cost)
	a.Remaining = min(e.balance+e.storeRemaining, e.limit.Limit())
	a.ResetAfter = max(0, e.reset.Sub(now))
	low = !e.refilling && e.balance < max(e.demand, e.spent)/2 && e.storeRemaining > 0 && !now.Before(e.retryAt)
	e.refilling = e.refilling || low
	return a, low
}

// unspend returns the cost of a take to the lease, because another take of its call was denied.
func (e *lease) unspend(limit *step.Params, at, cost int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit == limit {
		e.add(at, cost)
	}
}

// refund returns the unused part of a take to its lease, if this instance still holds it, and returns the amount. A
// lease never exceeds its maximum, because the store's bucket is smaller only by that.
func (e *lease) refund(t *group.Op, instances int, now time.Time) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit != t.Params || e.at == 0 || t.At < e.from || t.At > e.at || !e.until.IsZero() && !now.Before(e.until) {
		return 0
	}
	back := max(0, min(-t.Request.Cost, maxLeasedAmount(e.limit, instances)-e.balance))
	e.add(t.At, back)
	return back
}

// refundLease refunds as much as possible to a lease and reduces the take to the rest for the store. It reports whether
// nothing is left.
func (en *Engine) refundLease(t *group.Op) bool {
	if !t.Request.Settles || t.By.Accuracy != group.AccuracyLease || t.Request.Cost >= 0 {
		return false
	}
	if e := en.leases.keys.find(t.By, t.Key); e != nil {
		t.Request.Cost += e.refund(t, en.instanceCount(), time.Now())
	}
	return t.Request.Cost == 0
}

// leaseSize returns the amount to lease beyond a cost: the demand of leaseAhead, but at most an equal share of the
// remaining quota, or half of that without refill, so that the first instances do not take all of it.
func (e *lease) leaseSize(cost int64, instances int, now time.Time) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	left, part := e.storeRemaining, 2*int64(instances)
	switch {
	case e.at == 0:
		left = e.limit.Limit()
	case e.limit.Kind != step.Window: // refill since the last call
		left += int64(rate(e.limit) * now.Sub(e.asked).Seconds())
		part = int64(instances)
	}
	ahead := min(max(e.demand, e.spent-cost), left/part)
	return max(0, min(ahead, maxLeasedAmount(e.limit, instances)-e.balance))
}

// grant adds the amount that the store granted beyond the cost, which may be 0. The store call started at began. In a
// window that is known to be used up, takes call the store without leasing, so that their denials can be cached.
func (e *lease) grant(en *Engine, limit *step.Params, d *group.Answer, cost int64, began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit != limit {
		return // the limit has changed, and the quota leased under the old one is lost
	}
	until := began.Add(d.ResetAfter)
	if limit.Kind == step.Window {
		switch {
		case e.until.IsZero() || until.Sub(e.until) > window(limit)/2: // the next window
			e.void()
			e.until, e.from = until, d.At
			e.schedulePrefetch(en)
		case e.until.Sub(until) > window(limit)/2: // a late reply about the previous window
			return
		case until.Before(e.until):
			e.until = until
		}
	} else if d.Remaining < d.Limit/8 { // drained as fast as it is refilled: lease larger amounts less often
		e.retryAt = began.Add(drainedBackoff)
	}
	e.storeRemaining, e.at, e.asked, e.reset = d.Remaining, d.At, began, until
	if e.from == 0 {
		e.from = d.At
	}
	e.add(d.At, d.Granted-cost)
}

// markDrained records that the store had less than the cost.
func (e *lease) markDrained(limit *step.Params, d *group.Answer, cost int64, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit == limit {
		e.storeRemaining, e.asked, e.denied, e.retry = 0, now, cost, now.Add(d.RetryAfter)
		e.retryAt = now.Add(min(max(drainedBackoff, d.RetryAfter), denyCacheTTL))
	}
}

// refill leases more in the background; the caller has enough for now. It ends within the timeout.
func (en *Engine) refill(ctx context.Context, e *lease, rule *group.Rule, limit *step.Params) {
	ctx = context.WithoutCancel(ctx)
	done := func() {
		e.mu.Lock()
		e.refilling = false
		e.mu.Unlock()
	}
	if !en.work.start(func() {
		defer done()
		en.leaseNow(ctx, e, rule, limit)
	}) {
		done()
	}
}

// leaseNow leases as much as the demand requires.
func (en *Engine) leaseNow(ctx context.Context, e *lease, rule *group.Rule, limit *step.Params) {
	began, instances := time.Now(), en.instanceCount()
	ask := rule.Op(en.leasedLimit(limit, instances), e.name.key, e.hashTag, e.leaseSize(0, instances, began))
	ask.Request.Min, ask.Request.Settles = 1, e.reserves()
	if ask.Request.Cost <= 0 {
		return
	}
	out := make([]group.Answer, 1)
	if err := en.callOrFallback(ctx, []group.Op{ask}, out, began); err == nil && out[0].Source == group.SourceStore {
		e.grant(en, limit, &out[0], 0, began)
		en.returnLate(ctx, e)
	}
	if !out[0].Allowed {
		e.mu.Lock()
		e.storeRemaining = 0 // so that the store is not called repeatedly
		e.mu.Unlock()
	}
}

// window returns the window length of a limit.
func window(p *step.Params) time.Duration { return time.Duration(p.Length) * time.Microsecond }

// rate returns the rate of a limit per second.
func rate(p *step.Params) float64 { return float64(p.Count) / window(p).Seconds() }
