package sluice

import (
	"context"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

// A limiter on a [Remote] store decides rules with [Eventual] accuracy from what it believes of a key: what the store
// had when it was last asked, what was spent here since, and what others are likely to have spent meanwhile. Ten times
// a second it tells the store what was spent here and learns what all have spent together; see exchange.
//
// Only quantities are exchanged, never verdicts, and what was spent is charged at the store whatever the limit says:
// the next window, or a bucket in debt, pays for what was too much. If debt were forgiven, each process would admit the
// whole rate.
//
// A process is never ignorant for longer than [Staleness] of what others spent, so that together they admit at most the
// limit and what is offered in that time. That others go on as before is assumed, which makes it much less while the
// load is steady.
//
// The first take of a key, and the first after nobody asked for it between two exchanges, is decided at the store: a
// key that is asked for rarely costs no more calls than with [Exact].
type views struct {
	held held[view]
	born time.Time
	runs bool // the exchange; guarded by leases.mu
}

// viewAge is up to when a view is good while the store does not answer. Then the rules' fail modes decide.
const viewAge = 5 * exchangeEvery

// view is what this process believes of one key. Times are the store's, in microseconds.
type view struct {
	name heldName
	slot string

	mu    sync.Mutex // guards the fields below
	gone  bool       // no longer among the views
	asked bool       // since the last exchange
	warm  bool       // the fallback knows what is left
	rule  *Rule
	limit *Limit

	seen  time.Time  // when the store answered
	at    int64      // what its clock said before; by now at least at + what has passed since seen
	base  step.State // what it had then
	state step.State // and what that became by own and others' takes
	hold  int64      // the key is blocked until then

	own      int64   // spent here and not reported
	window   int64   // end of the window that it was spent in
	refunded int64   // when the earliest take was that was given back, if own is negative
	sent     report  // on its way, or lost
	others   float64 // what others spend in a microsecond
	since    int64   // when
	guessed  int64   // how much of it is in the state
}

// report is what was spent here, as told to the store.
type report struct {
	cost, at int64
	id       uint64 // once it may have been lost
}

// CanCount tells whether rules with this limit may have [Eventual] accuracy.
func (l Limit) CanCount() bool {
	switch l.Algorithm {
	case FixedWindow:
		return l.Over == 0
	case SlidingCounter:
		return l.SubWindows <= 1
	case TokenBucket, LeakyBucket:
		return l.Refill == RefillContinuous
	}
	return false
}

func newViews() *views { return &views{held: newHeld[view](), born: time.Now()} }

// drop forgets a key: an operator has reset or blocked it.
func (v *views) drop(r *Rule, key string) {
	v.held.each(r, key, func(e *view) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.gone = true
		return false
	})
}

// counts tells whether the take may be decided from what is believed of its key.
func (t *Take) counts() bool {
	if t.Rule.Accuracy != Eventual || t.ID != 0 || !t.Effective().CanCount() {
		return false
	}
	sound := t.Cost <= MaxCost && t.Cost >= -MaxCost && (t.Cost >= 0 || t.At != 0) && t.Min >= 0 && (t.Min == 0 || t.Min <= t.Cost) && t.MaxDelay >= 0
	return sound // else the store says what is wrong
}

// believe decides the take from what is believed of its key, if that is enough. Reservations and their settlements are the
// store's: it keeps the marks that say how much can be given back, and another process may settle.
func (l *Limiter) believe(t *Take, now time.Time, d *Decision) bool {
	if t.Settles || !t.counts() {
		return false
	}
	e := l.views.held.find(t.Rule, t.Key)
	return e != nil && e.decide(l, t, now, d)
}

func (e *view) decide(l *Limiter, t *Take, now time.Time, d *Decision) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = true
	limit := t.Effective()
	if e.gone || e.limit != limit || e.seen.IsZero() {
		return false
	}
	if now.Sub(e.seen) > viewAge {
		if !e.warm { // the fallback is to hand out no more than what is left
			e.warm = true
			left := limit.params.Limit() - limit.params.Spent(e.state, e.clock(now))
			l.warm([]Take{{Rule: t.Rule, Limit: limit, Key: e.name.key, Cost: 1}}, []Decision{{Remaining: max(0, left)}}, now)
		}
		return false
	}
	at := e.clock(now)
	if limit.Align == AlignFirstHit && e.state.FreshAt <= at {
		return false // when the next window begins is the store's to say
	}
	e.roll(at)
	if l.foresees {
		e.guess(at)
	}
	switch {
	case t.At != 0:
		*d = e.adjust(t, at)
	case !e.plain(t, at, d):
		*d = e.take(t, at)
	}
	return true
}

// allowHere is a shortcut for the common case.
func (l *Limiter) allowHere(ctx context.Context, key string, n int64, d *Decision) bool {
	if l.leases.closed.Load() || l.suspended.Load() != nil {
		return false
	}
	t := Take{Rule: l.rules[0], Key: key, Cost: n}
	now := l.views.born.Add(time.Since(l.views.born)) // costs half of time.Now, which reads two clocks
	if !l.believe(&t, now, d) {
		return false
	}
	if l.reports {
		l.reportPlain(ctx, nil, key, n, d)
	}
	return true
}

// clock is what the store's says now, or a little less: the state never wears off early.
func (e *view) clock(now time.Time) int64 { return e.at + now.Sub(e.seen).Microseconds() }

// roll lets go of what was spent in a window that has ended. The store would not count it any more either.
func (e *view) roll(at int64) {
	if e.limit.Algorithm == FixedWindow && e.window <= at {
		e.own, e.window = 0, 0
	}
}

// guess adds to the state what others are likely to have spent.
func (e *view) guess(at int64) {
	if more := int64(e.others*float64(at-e.since)) - e.guessed; more > 0 {
		e.guessed += more
		e.state, _ = e.limit.params.Adjust(e.state, nil, at, step.Settlement{At: at, Delta: more})
	}
}

// plain is take for the common case, if it is one.
func (e *view) plain(t *Take, at int64, d *Decision) bool {
	if t.Cost <= 0 || t.Min != 0 || t.MaxDelay != 0 || t.Rule.ChargeDenied || e.hold > at {
		return false
	}
	p := e.limit.params
	fresh, value, retry, remaining := p.Plain(e.state.FreshAt, e.state.Value, e.state.Shape, at, t.Cost)
	if retry == step.Undecided {
		return false
	}
	*d = Decision{
		Source: SourceEventual, Limit: p.Limit(), Remaining: remaining, At: at,
		RetryAfter: time.Duration(retry) * time.Microsecond, ResetAfter: time.Duration(max(0, fresh-at)) * time.Microsecond,
	}
	if retry == step.Fits {
		d.Allowed, d.Granted = true, t.Cost
		e.own += t.Cost
		e.window = max(e.window, fresh)
		e.state = step.State{FreshAt: fresh, Value: value, Shape: p.Shape()}
	}
	return true
}

func (e *view) take(t *Take, at int64) Decision {
	p := e.limit.params
	if e.hold > at {
		until := time.Duration(e.hold-at) * time.Microsecond
		return Decision{Blocked: true, Source: SourceEventual, Limit: p.Limit(), At: at, RetryAfter: until, ResetAfter: until}
	}
	next, a := p.Take(e.state, nil, at, step.Request{
		Cost: t.Cost, Min: t.Min, MaxDelay: min(t.MaxDelay, maxDelay).Microseconds(), Charge: t.Rule.ChargeDenied,
	})
	if t.Cost > 0 {
		if e.own += a.Granted; !a.Allowed && t.Rule.ChargeDenied {
			e.own += p.Spent(next, at) - p.Spent(e.state, at)
		}
		e.window = max(e.window, next.FreshAt)
		e.state = next
	}
	d := Answered(p, &a)
	d.Source = SourceEventual
	return d
}

// adjust settles or gives back an earlier take.
func (e *view) adjust(t *Take, at int64) Decision {
	p := e.limit.params
	next, a := p.Adjust(e.state, nil, at, step.Settlement{At: t.At, Delta: t.Cost})
	if t.Cost < 0 && (e.own >= 0 || t.At < e.refunded) {
		e.refunded = t.At
	}
	e.own += a.Granted
	e.window = max(e.window, e.state.FreshAt, next.FreshAt)
	e.state = next
	d := Answered(p, &a)
	d.Source = SourceEventual
	return d
}

// disbelieve undoes a take of a call that was denied for another reason.
func (l *Limiter) disbelieve(t *Take, d *Decision, now time.Time) {
	back := Take{Rule: t.Rule, Limit: t.Limit, Key: t.Key, Cost: -d.Granted, At: d.At}
	var given Decision
	if l.believe(&back, now, &given) {
		d.Remaining = given.Remaining
	}
	d.Granted = 0
}

// learn notes what the store said of a key when it decided a take of it.
func (l *Limiter) learn(t *Take, d *Decision, answered time.Time) {
	if d.Source != SourceStore || !t.counts() || t.At != 0 {
		return
	}
	e := l.views.held.add(t, func(name heldName, slot string) *view { return &view{name: name, slot: slot} })
	if e == nil {
		return
	}
	limit := t.Effective()
	at := d.At - d.Delay.Microseconds()
	e.mu.Lock()
	if e.limit == limit && at < e.at { // an older answer
		e.mu.Unlock()
		return
	}
	if e.limit != limit {
		e.base, e.others = step.State{}, 0
	}
	e.rule, e.limit = t.Rule, limit
	was := e.base.FreshAt
	e.base = limit.params.Learn(e.base, at, d.Remaining, d.ResetAfter.Microseconds())
	e.know(at, was, answered)
	e.block(d.Allowed || t.Cost > 1 || t.Min > 1, d.RetryAfter.Microseconds())
	e.mu.Unlock()
	l.exchanges()
}

// know begins anew from what the store has, and adds what it has not heard of. Of others' takes it has not heard those of
// half an interval in the mean, unless the window is younger; was is when the window before ended.
func (e *view) know(at, was int64, answered time.Time) {
	e.at, e.seen, e.warm, e.guessed = at, answered, false, 0
	e.since = at - exchangeEvery.Microseconds()/2
	if e.limit.Algorithm == FixedWindow {
		if e.base.FreshAt > at {
			was = e.base.FreshAt - e.limit.params.Length
		}
		e.since = min(at, max(e.since, was))
	}
	e.roll(at)
	e.state = e.base
	if more := e.own + e.sent.cost; more != 0 {
		e.state, _ = e.limit.params.Adjust(e.state, nil, at, step.Settlement{At: at, Delta: more})
	}
}

// block notes that the store denies the key for longer than what was spent explains.
func (e *view) block(allowed bool, retry int64) {
	e.hold = 0
	if allowed {
		return
	}
	const slack = 1000 // more than can come from rounding
	if _, a := e.limit.params.Take(e.base, nil, e.at, step.Request{Cost: 1, Dry: true}); retry > a.RetryAfter+slack {
		e.hold = e.at + retry
	}
}
