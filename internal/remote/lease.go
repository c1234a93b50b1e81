package remote

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// An engine leases budget for rules with lease accuracy: it takes a part of a key's budget from the
// store at once and spends it in memory. What is leased is spent at the store already, so that all processes together
// never admit more than the limit, whichever of them crash or are cut off; what a process has leased and does not spend
// is lost for a while.
//
// A fixed window's lease ends with the window. Its end is reckoned from when the store was asked, not from when it
// answered, so that no clock has to agree with another's and a slow answer errs on the safe side.
//
// A bucket's lease could be spent on top of a full bucket. So buckets keep room for it: the store's bucket is smaller by
// what all processes together may hold. That needs their number, see Config.Instances; without it buckets are not leased.
//
// How much is leased follows the demand: about what a key spent in the last quarter of a second, at most half of an
// equal share of what is left. A key that is asked for rarely is not leased at all.
type leases struct {
	keys   keyMap[lease]
	limits parts // as the store holds them

	mu     sync.Mutex // guards sweeps
	sweeps bool       // the janitor runs
}

const (
	leaseAhead       = 250 * time.Millisecond // how much demand a lease covers
	leaseIdleTimeout = time.Second            // what is not spent for so long is given back
	// drainedBackoff is for how long a bucket that was found empty is left alone, so that there is something to lease again.
	// Who comes meanwhile is denied: a bucket that is drained all the time would else be asked for every drop.
	drainedBackoff = 50 * time.Millisecond
)

// lease is the budget of one key that this process holds.
type lease struct {
	name    bucketID
	hashTag string

	mu             sync.Mutex // guards the fields below
	rule           *group.Rule
	limit          *step.Params // that it was leased under; a changed one begins anew
	balance        int64
	until          time.Time // a window's lease ends; zero: none was granted yet, or it is a bucket's
	at             int64     // Answer.At of the last grant; 0: the store was not asked yet in this window
	from           int64     // Answer.At of the first grant since the lease is held, or of the window
	parts          []leased  // what the balance consists of, oldest first; lies in room
	room           [maxParts + 1]leased
	settles        bool      // reservations are answered from it, so that the store keeps marks for what it grants
	storeRemaining int64     // at the store, when it was last asked
	asked          time.Time // when that was
	reset          time.Time // when the key is as if never used
	retryAt        time.Time // do not ask again before
	denied         int64     // the cost that the store denied last
	retry          time.Time // when it said that this cost fits

	next  *time.Timer   // leases for the next window
	fetch chan struct{} // closed when that is done

	used      time.Time // last
	spent     int64     // since measured
	measured  time.Time
	demand    int64 // what was spent in the last leaseAhead
	refilling bool
	returned  bool // nobody can find it any more
}

func newLease(name bucketID, tag string) *lease {
	e := &lease{name: name, hashTag: tag}
	e.parts = e.room[:0] // beside the balance, so that a decision finds both in memory that is near
	return e
}

// leased is what is left of one grant of the store.
type leased struct{ at, n int64 }

// maxParts bounds how many grants are told apart. Older ones count as one, of the time of the oldest: less is given back of it.
const maxParts = 8

// add adds to the balance what was granted at a time.
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

// remove takes from the balance, oldest first, and returns when the oldest of it was granted.
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

// void forgets the balance.
func (e *lease) void() { e.balance, e.parts = 0, e.parts[:0] }

// canLease reports whether the take may be answered from a lease.
func (en *Engine) canLease(t *group.Op) bool {
	r := &t.Request
	if t.By.Accuracy != group.AccuracyLease || r.Cost <= 0 || t.At != 0 || t.ID != 0 || r.Min != 0 || r.MaxDelay != 0 || t.By.ChargeDenied {
		return false
	}
	return CanLease(t.Params) && en.mayHold(t.Params)
}

// mayHold reports whether this process may hold some of the limit now.
func (en *Engine) mayHold(p *step.Params) bool {
	return p.Kind == step.Window || en.Instances != nil && maxLeasedAmount(p, en.instanceCount()) > 1
}

// CanLease reports whether limits with these numbers can be leased: windows that are not soft, and buckets that fill
// continuously.
func CanLease(p *step.Params) bool {
	return p.Kind == step.Window && p.SoftExcess == 0 || p.Kind == step.Bucket && !p.Queue && !p.HasInitial
}

// maxLeasedAmount is how much of a limit one process may hold at a time. All processes together hold at most half of a bucket.
func maxLeasedAmount(p *step.Params, instances int) int64 {
	if p.Kind == step.Window {
		return p.Count
	}
	return p.Burst / 2 / int64(instances)
}

// leasedLimit is the limit as the store holds it: a bucket is smaller by what all processes may have leased.
func (en *Engine) leasedLimit(p *step.Params, instances int) *step.Params {
	if p.Kind == step.Window {
		return p
	}
	return en.leases.limits.of(partKey{p, instances}, func() *step.Params {
		return p.Part(p.Count, p.Burst-maxLeasedAmount(p, instances)*int64(instances), p.SoftExcess)
	})
}

// getOrCreate returns the key's lease, made if there is room for one more.
func (s *leases) getOrCreate(t *group.Op) *lease {
	if e := s.keys.find(t.By, t.Key); e != nil {
		return e
	}
	return s.keys.add(t, newLease)
}

// drop forgets what is leased of a key: an operator has reset or blocked it.
func (s *leases) drop(r *group.Rule, key string) {
	s.keys.each(r, key, func(e *lease) bool { return !e.drop() })
}

// dropRule is drop for all keys of a rule.
func (s *leases) dropRule(r *group.Rule) {
	s.keys.each(nil, "", func(e *lease) bool { return e.name.rule != r.Name || !e.drop() })
}

// drop ends what the lease does in the background. It returns true.
func (e *lease) drop() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancelPrefetch()
	return true
}

// reserves reports whether reservations are answered from the lease.
func (e *lease) reserves() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.settles
}

// recordDemand takes down the demand.
func (e *lease) recordDemand(cost int64, now time.Time) {
	if elapsed := now.Sub(e.measured); elapsed >= leaseAhead {
		e.demand = int64(float64(e.spent) * float64(leaseAhead) / float64(elapsed))
		e.spent, e.measured = 0, now
	}
	e.spent += cost
	e.used = now
}

// spend takes the cost from the lease if it holds that much, or denies it if the store has just had nothing. Low tells
// that it is time to lease more. A caller that tries again has its demand noted already.
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
		if wait <= 0 || t.By.Shadow || t.Request.Cost > limit.Limit() { // which the store says can never fit
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

// spendBalance takes a cost from the balance, which holds as much. What is settled or given back of it is so here, or at
// the store, where the lease was taken.
func (e *lease) spendBalance(cost int64, now time.Time) (a FastAnswer, low bool) {
	a.At = e.remove(cost)
	a.Remaining = min(e.balance+e.storeRemaining, e.limit.Limit())
	a.ResetAfter = max(0, e.reset.Sub(now))
	low = !e.refilling && e.balance < max(e.demand, e.spent)/2 && e.storeRemaining > 0 && !now.Before(e.retryAt)
	e.refilling = e.refilling || low
	return a, low
}

// unspend returns what was taken for a call that was denied for another reason.
func (e *lease) unspend(limit *step.Params, at, cost int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit == limit {
		e.add(at, cost)
	}
}

// refund gives back what a take did not need to the lease that the take came from, if that is still held, and reports how
// much that was. A lease never holds more than its share: room is kept in the store's bucket for no more.
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

// refundLease gives back to a lease what it can, changes the take to what is left for the store, and reports whether that
// is nothing.
func (en *Engine) refundLease(t *group.Op) bool {
	if !t.Request.Settles || t.By.Accuracy != group.AccuracyLease || t.Request.Cost >= 0 {
		return false
	}
	if e := en.leases.keys.find(t.By, t.Key); e != nil {
		t.Request.Cost += e.refund(t, en.instanceCount(), time.Now())
	}
	return t.Request.Cost == 0
}

// leaseSize is how much to ask the store for beyond a cost: what is spent in a while, but no more than an equal part of what
// is left, or half of that where nothing flows in, so that it is not all stranded with those who come first.
func (e *lease) leaseSize(cost int64, instances int, now time.Time) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	left, part := e.storeRemaining, 2*int64(instances)
	switch {
	case e.at == 0:
		left = e.limit.Limit()
	case e.limit.Kind != step.Window: // what has flown in since
		left += int64(rate(e.limit) * now.Sub(e.asked).Seconds())
		part = int64(instances)
	}
	ahead := min(max(e.demand, e.spent-cost), left/part)
	return max(0, min(ahead, maxLeasedAmount(e.limit, instances)-e.balance))
}

// grant adds what the store granted beyond the cost, which may be nothing. The store was asked at began, and answered then
// or later. Of a window that is known to be spent no more is asked for than is needed, which is a take whose denial can be
// remembered.
func (e *lease) grant(en *Engine, limit *step.Params, d *group.Answer, cost int64, began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit != limit {
		return // it has changed meanwhile: what was leased under the old one is lost
	}
	until := began.Add(d.ResetAfter)
	if limit.Kind == step.Window {
		switch {
		case e.until.IsZero() || until.Sub(e.until) > window(limit)/2: // the next window
			e.void()
			e.until, e.from = until, d.At
			e.schedulePrefetch(en)
		case e.until.Sub(until) > window(limit)/2: // an answer of the window before came late
			return
		case until.Before(e.until):
			e.until = until
		}
	} else if d.Remaining < d.Limit/8 { // drained as fast as it fills: take what flows in by larger sips
		e.retryAt = began.Add(drainedBackoff)
	}
	e.storeRemaining, e.at, e.asked, e.reset = d.Remaining, d.At, began, until
	if e.from == 0 {
		e.from = d.At
	}
	e.add(d.At, d.Granted-cost)
}

// markDrained notes that the store's bucket had less than the cost.
func (e *lease) markDrained(limit *step.Params, d *group.Answer, cost int64, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit == limit {
		e.storeRemaining, e.asked, e.denied, e.retry = 0, now, cost, now.Add(d.RetryAfter)
		e.retryAt = now.Add(min(max(drainedBackoff, d.RetryAfter), denyCacheTTL))
	}
}

// refill leases more beside the caller, who has enough for now. It ends within the timeout.
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

// leaseNow leases as much as is worth it.
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
		e.storeRemaining = 0 // so that it is not asked again and again
		e.mu.Unlock()
	}
}

// window is how long a limit is for.
func window(p *step.Params) time.Duration { return time.Duration(p.Length) * time.Microsecond }

// rate is what a limit lets pass in a second.
func rate(p *step.Params) float64 { return float64(p.Count) / window(p).Seconds() }
