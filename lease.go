package sluice

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A limiter on a [Remote] store leases budget for rules with [Lease] accuracy: it takes a part of a key's budget from the
// store at once and spends it in memory. What is leased is spent at the store already, so that all processes together
// never admit more than the limit, whichever of them crash or are cut off; what a process has leased and does not spend
// is lost for a while.
//
// A fixed window's lease ends with the window. Its end is reckoned from when the store was asked, not from when it
// answered, so that no clock has to agree with another's and a slow answer errs on the safe side.
//
// A bucket's lease could be spent on top of a full bucket. So buckets keep room for it: the store's bucket is smaller by
// what all processes together may hold. That needs their number, see [WithNodes]; without it buckets are not leased.
//
// How much is leased follows the demand: about what a key spent in the last quarter of a second, at most half of an
// equal share of what is left. A key that is asked for rarely is not leased at all.
type leases struct {
	held held[lease]
	work sync.WaitGroup // refills and the janitor

	closed  atomic.Bool
	closing chan struct{}
	mu      sync.Mutex // guards sweeps, and the start of work against close
	sweeps  bool       // the janitor runs
}

const (
	leaseAhead = 250 * time.Millisecond // how much demand a lease covers
	leaseIdle  = time.Second            // what is not spent for so long is given back
	// leaseHold is for how long a bucket that was found empty is left alone, so that there is something to lease again.
	// Who comes meanwhile is denied: a bucket that is drained all the time would else be asked for every drop.
	leaseHold = 50 * time.Millisecond
)

// lease is the budget of one key that this process holds.
type lease struct {
	name heldName
	slot string

	mu      sync.Mutex // guards the fields below
	rule    *Rule
	limit   *Limit // that it was leased under; a changed one begins anew
	balance int64
	until   time.Time // a window's lease ends; zero: none was granted yet, or it is a bucket's
	at      int64     // Decision.At of the last grant; 0: the store was not asked yet in this window
	from    int64     // Decision.At of the first grant since the lease is held, or of the window
	parts   []leased  // what the balance consists of, oldest first; lies in room
	room    [maxParts + 1]leased
	settles bool      // reservations are answered from it, so that the store keeps marks for what it grants
	left    int64     // at the store, when it was last asked
	asked   time.Time // when that was
	reset   time.Time // when the key is as if never used
	hold    time.Time // do not ask again before
	denied  int64     // the cost that the store denied last
	retry   time.Time // when it said that this cost fits

	next  *time.Timer   // leases for the next window
	fetch chan struct{} // closed when that is done

	used      time.Time // last
	spent     int64     // since measured
	measured  time.Time
	demand    int64 // what was spent in the last leaseAhead
	refilling bool
}

func newLease(name heldName, slot string) *lease {
	e := &lease{name: name, slot: slot}
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

// canLease tells whether the take may be answered from a lease.
func (l *Limiter) canLease(t *Take) bool {
	if t.Rule.Accuracy != Lease || t.Cost <= 0 || t.At != 0 || t.ID != 0 || t.Min != 0 || t.MaxDelay != 0 || t.Rule.ChargeDenied {
		return false
	}
	limit := t.Effective()
	return limit.CanLease() && (limit.Algorithm == FixedWindow || l.nodes != nil && mostLeased(limit, l.liveNodes()) > 1)
}

// CanLease tells whether rules with this limit may have [Lease] accuracy.
func (l Limit) CanLease() bool {
	switch l.Algorithm {
	case FixedWindow:
		return l.Over == 0
	case TokenBucket, LeakyBucket:
		return l.Refill == RefillContinuous
	}
	return false
}

// mostLeased is how much of a limit one process may hold at a time. All processes together hold at most half of a bucket.
func mostLeased(limit *Limit, nodes int) int64 {
	if limit.Algorithm == FixedWindow {
		return limit.Count
	}
	return limit.Burst / 2 / int64(nodes)
}

// leasedLimit is the limit as the store holds it: a bucket is smaller by what all processes may have leased.
func (l *Limiter) leasedLimit(limit *Limit, nodes int) *Limit {
	if limit.Algorithm == FixedWindow {
		return limit
	}
	k := sharedLimit{limit, -nodes} // negative, to be told from the shares of the fallback
	if kept, ok := l.local.shares.Load(k); ok {
		return kept.(*Limit)
	}
	smaller := limit.PartOf(limit)
	smaller.Burst -= mostLeased(limit, nodes) * int64(nodes)
	built, err := smaller.Build()
	if err != nil { // a smaller bucket than a sound one is sound
		return limit
	}
	if l.local.kept.Add(1) <= maxShares {
		l.local.shares.Store(k, built)
	}
	return built
}

func newLeases() *leases { return &leases{held: newHeld[lease](), closing: make(chan struct{})} }

// of returns the key's lease, made if there is room for one more.
func (s *leases) of(t *Take) *lease {
	if e := s.held.find(t.Rule, t.Key); e != nil {
		return e
	}
	return s.held.add(t, newLease)
}

// drop forgets what is leased of a key: an operator has reset or blocked it.
func (s *leases) drop(r *Rule, key string) {
	s.held.each(r, key, func(e *lease) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.rest()
		return false
	})
}

// reserves reports whether reservations are answered from the lease.
func (e *lease) reserves() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.settles
}

// note takes down the demand.
func (e *lease) note(cost int64, now time.Time) {
	if elapsed := now.Sub(e.measured); elapsed >= leaseAhead {
		e.demand = int64(float64(e.spent) * float64(leaseAhead) / float64(elapsed))
		e.spent, e.measured = 0, now
	}
	e.spent += cost
	e.used = now
}

// spend takes the cost from the lease if it holds that much, or denies it if the store has just had nothing. Low tells
// that it is time to lease more. A caller that tries again has its demand noted already.
func (e *lease) spend(t *Take, now time.Time, d *Decision, again bool) (decided, low bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !again {
		e.note(t.Cost, now)
	}
	limit := t.Effective()
	if e.limit != limit || !e.until.IsZero() && !now.Before(e.until) {
		e.void()
		e.rule, e.limit, e.until, e.at, e.from, e.hold = t.Rule, limit, time.Time{}, 0, 0, time.Time{}
	}
	if e.balance < t.Cost {
		wait := e.hold.Sub(now)
		if wait <= 0 || t.Rule.Shadow || t.Cost > limit.params.Limit() { // which the store says can never fit
			return false, false
		}
		if t.Cost == e.denied {
			wait = max(wait, e.retry.Sub(now))
		}
		*d = Decision{
			Source: SourceLease, Limit: limit.params.Limit(), Remaining: min(e.balance, t.Cost-1),
			RetryAfter: wait, ResetAfter: max(0, e.reset.Sub(now)),
		}
		return true, false
	}
	at := e.remove(t.Cost)
	e.settles = e.settles || t.Settles
	*d = Decision{ // what is settled or given back of it is so here, or at the store, where the lease was taken
		Allowed: true, Source: SourceLease, Limit: limit.params.Limit(), Granted: t.Cost, At: at,
		Remaining: min(e.balance+e.left, limit.params.Limit()), ResetAfter: max(0, e.reset.Sub(now)),
	}
	low = !e.refilling && e.balance < max(e.demand, e.spent)/2 && e.left > 0 && !now.Before(e.hold)
	e.refilling = e.refilling || low
	return true, low
}

// unspend returns what was taken for a call that was denied for another reason.
func (e *lease) unspend(limit *Limit, at, cost int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit == limit {
		e.add(at, cost)
	}
}

// refund gives back what a take did not need to the lease that the take came from, if that is still held, and reports how
// much that was. A lease never holds more than its share: room is kept in the store's bucket for no more.
func (e *lease) refund(t *Take, nodes int, now time.Time) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit != t.Effective() || e.at == 0 || t.At < e.from || t.At > e.at || !e.until.IsZero() && !now.Before(e.until) {
		return 0
	}
	back := max(0, min(-t.Cost, mostLeased(e.limit, nodes)-e.balance))
	e.add(t.At, back)
	return back
}

// refundLease gives back to a lease what it can, changes the take to what is left for the store, and reports whether that
// is nothing.
func (l *Limiter) refundLease(t *Take) bool {
	if !t.Settles || t.Rule.Accuracy != Lease || t.Cost >= 0 {
		return false
	}
	if e := l.leases.held.find(t.Rule, t.Key); e != nil {
		t.Cost += e.refund(t, l.liveNodes(), time.Now())
	}
	return t.Cost == 0
}

// want is how much to ask the store for beyond a cost: what is spent in a while, but no more than an equal part of what
// is left, or half of that where nothing flows in, so that it is not all stranded with those who come first.
func (e *lease) want(cost int64, nodes int, now time.Time) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	left, part := e.left, 2*int64(nodes)
	switch {
	case e.at == 0:
		left = e.limit.params.Limit()
	case e.limit.Algorithm != FixedWindow: // what has flown in since
		left += int64(e.limit.Rate() * now.Sub(e.asked).Seconds())
		part = int64(nodes)
	}
	ahead := min(max(e.demand, e.spent-cost), left/part)
	return max(0, min(ahead, mostLeased(e.limit, nodes)-e.balance))
}

// grant adds what the store granted beyond the cost, which may be nothing. The store was asked at began, and answered then
// or later. Of a window that is known to be spent no more is asked for than is needed, which is a take whose denial can be
// remembered.
func (e *lease) grant(l *Limiter, limit *Limit, d *Decision, cost int64, began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit != limit {
		return // it has changed meanwhile: what was leased under the old one is lost
	}
	until := began.Add(d.ResetAfter)
	if limit.Algorithm == FixedWindow {
		switch {
		case e.until.IsZero() || until.Sub(e.until) > limit.Window/2: // the next window
			e.void()
			e.until, e.from = until, d.At
			e.wake(l)
		case e.until.Sub(until) > limit.Window/2: // an answer of the window before came late
			return
		case until.Before(e.until):
			e.until = until
		}
	} else if d.Remaining < d.Limit/8 { // drained as fast as it fills: take what flows in by larger sips
		e.hold = began.Add(leaseHold)
	}
	e.left, e.at, e.asked, e.reset = d.Remaining, d.At, began, until
	if e.from == 0 {
		e.from = d.At
	}
	e.add(d.At, d.Granted-cost)
}

// empty notes that the store's bucket had less than the cost.
func (e *lease) empty(limit *Limit, d *Decision, cost int64, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit == limit {
		e.left, e.asked, e.denied, e.retry = 0, now, cost, now.Add(d.RetryAfter)
		e.hold = now.Add(min(max(leaseHold, d.RetryAfter), denialTime))
	}
}

// refill leases more beside the caller, who has enough for now. It ends within the budget.
func (l *Limiter) refill(ctx context.Context, e *lease, t *Take) {
	ctx, rule, limit := context.WithoutCancel(ctx), t.Rule, t.Effective()
	done := func() {
		e.mu.Lock()
		e.refilling = false
		e.mu.Unlock()
	}
	if !l.leases.start(func() {
		defer done()
		l.leaseNow(ctx, e, rule, limit)
	}) {
		done()
	}
}

// leaseNow leases as much as is worth it.
func (l *Limiter) leaseNow(ctx context.Context, e *lease, rule *Rule, limit *Limit) {
	began, nodes := time.Now(), l.liveNodes()
	ask := Take{Rule: rule, Limit: l.leasedLimit(limit, nodes), Key: e.name.key, Slot: e.slot, Cost: e.want(0, nodes, began), Min: 1, Settles: e.reserves()}
	if ask.Cost <= 0 {
		return
	}
	out := make([]Decision, 1)
	if err := l.ask(ctx, []Take{ask}, out, began); err == nil && out[0].Source == SourceStore {
		e.grant(l, limit, &out[0], 0, began)
	}
	if !out[0].Allowed {
		e.mu.Lock()
		e.left = 0 // so that it is not asked again and again
		e.mu.Unlock()
	}
}

// start runs f on a goroutine that close waits for.
func (s *leases) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return false
	}
	s.work.Go(f)
	return true
}

// sweep has the janitor run while something is leased.
func (s *leases) sweep(l *Limiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() || s.sweeps {
		return
	}
	s.sweeps = true
	s.work.Go(func() {
		for {
			select {
			case <-time.After(leaseIdle / 2):
			case <-s.closing:
				return
			}
			if l.returnLeases(context.Background(), time.Now().Add(-leaseIdle)) {
				continue
			}
			s.mu.Lock()
			s.sweeps = false
			s.mu.Unlock()
			return
		}
	})
}

// returnLeases gives back what was not used since then, and tells whether there are other leases.
func (l *Limiter) returnLeases(ctx context.Context, since time.Time) (more bool) {
	var idle []*lease
	more = l.leases.held.each(nil, "", func(e *lease) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.used.After(since) {
			return true
		}
		idle = append(idle, e)
		return false
	})
	for _, e := range idle {
		l.returnLease(ctx, e)
	}
	return more
}

// returnLease gives back what is left of a lease that nobody can find any more. If that fails it stays spent until it
// wears off.
func (l *Limiter) returnLease(ctx context.Context, e *lease) {
	e.mu.Lock()
	ended := !e.until.IsZero() && !time.Now().Before(e.until)
	var back []Take
	for _, p := range e.parts { // each as the grant that it is of, so that reservations of others can be settled as before
		back = append(back, Take{
			Rule: e.rule, Key: e.name.key, Slot: e.slot, Cost: -p.n, At: p.at, Charged: p.n, Settles: e.settles,
		})
	}
	e.void()
	e.rest()
	e.mu.Unlock()
	if len(back) == 0 || ended {
		return
	}
	limit := l.leasedLimit(e.limit, l.liveNodes())
	for i := range back {
		back[i].Limit = limit
	}
	within, done := l.guard.within(ctx, time.Now())
	defer done()
	_ = l.store.Apply(within, back, make([]Decision, len(back)))
}

// Close gives back what the limiter has leased, reports what it has spent and not reported, also what it admitted while the
// store was unavailable, sends the settlements that it has kept, and waits for what it does in the background. A limiter on a
// store in this process has nothing of the kind. Decisions after Close are asked of the store. The store is the caller's to close.
func (l *Limiter) Close(ctx context.Context) error {
	if l == nil || l.leases == nil {
		return nil
	}
	s := l.leases
	s.mu.Lock()
	if s.closed.CompareAndSwap(false, true) {
		close(s.closing)
	}
	s.mu.Unlock()
	s.work.Wait() // refills end within the budget
	l.returnLeases(ctx, time.Now().Add(leaseIdle))
	l.tellAll(ctx)
	l.payAll(ctx)
	l.resendAll(ctx)
	return ctx.Err()
}
