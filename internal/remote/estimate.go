package remote

import (
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// An engine decides rules with eventual accuracy from an estimate of a key: what the store
// had when it was last asked, what was spent here since, and what others are likely to have spent meanwhile. Ten times
// a second it tells the store what was spent here and learns what all have spent together; see sync.
//
// Only quantities are exchanged, never verdicts, and what was spent is charged at the store whatever the limit says:
// the next window, or a bucket in debt, pays for what was too much. If debt were forgiven, each process would admit the
// whole rate.
//
// A process is never ignorant for longer than [Staleness] of what others spent, so that together they admit at most the
// limit and what is offered in that time. That others go on as before is assumed, which makes it much less while the
// load is steady.
//
// The first take of a key, and the first after nobody asked for it between two syncs, is decided at the store: a
// key that is asked for rarely costs no more calls than with exact accuracy.
type estimates struct {
	keys      keyMap[estimate]
	startedAt time.Time

	mu   sync.Mutex // guards runs
	runs bool       // the sync
}

// maxEstimateAge is up to when an estimate is good while the store does not answer. Then the rules' fail modes decide.
const maxEstimateAge = 5 * syncInterval

// estimate is what this process thinks of one key. Times are the store's, in microseconds.
type estimate struct {
	name    bucketID
	hashTag string

	mu             sync.Mutex // guards the fields below
	removed        bool       // no longer among the estimates
	usedSinceSync  bool       // since the last sync
	fallbackSynced bool       // the fallback knows what is left
	rule           *group.Rule
	limit          *step.Params

	syncedAt     time.Time  // when the store answered
	at           int64      // what its clock said before; by now at least at + what has passed since seen
	storeState   step.State // what it had then
	state        step.State // and what that became by own and others' takes
	blockedUntil int64      // the key is blocked until then

	unreported   int64   // spent here and not reported
	window       int64   // end of the window that it was spent in
	refunded     int64   // when the earliest take was that was given back, if unreported is negative
	inFlight     report  // on its way, or lost
	othersRate   float64 // what others spend in a microsecond
	since        int64   // when
	extrapolated int64   // how much of it is in the state
}

// report is what was spent here, as told to the store.
type report struct {
	cost, at int64
	id       uint64 // once it may have been lost
}

// CanEstimate reports whether limits with these numbers can be decided from an estimate: windows that are not soft, counters
// without sub-windows, and buckets that fill continuously.
func CanEstimate(p *step.Params) bool {
	return p.Kind == step.Window && p.SoftExcess == 0 || p.Kind == step.Counter || p.Kind == step.Bucket && !p.Queue && !p.HasInitial
}

// drop forgets a key: an operator has reset or blocked it.
func (v *estimates) drop(r *group.Rule, key string) {
	v.keys.each(r, key, func(e *estimate) bool { return !e.remove() })
}

// dropRule is drop for all keys of a rule.
func (v *estimates) dropRule(r *group.Rule) {
	v.keys.each(nil, "", func(e *estimate) bool { return e.name.rule != r.Name || !e.remove() })
}

// remove notes that the estimate is no longer among the others. It returns true.
func (e *estimate) remove() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removed = true
	return true
}

// canUseEstimate reports whether the take may be decided from the estimate of its key.
func canUseEstimate(t *group.Op) bool {
	return t.By.Accuracy == group.AccuracyEventual && t.ID == 0 && CanEstimate(t.Params)
}

// decideFromEstimate decides the take from the estimate of its key, if that is enough. Reservations and their settlements are the
// store's: it keeps the marks that say how much can be given back, and another process may settle.
func (en *Engine) decideFromEstimate(t *group.Op, now time.Time, d *group.Answer) bool {
	if t.Request.Settles || !canUseEstimate(t) {
		return false
	}
	e := en.estimates.keys.find(t.By, t.Key)
	return e != nil && e.decide(en, t, now, d)
}

func (e *estimate) decide(en *Engine, t *group.Op, now time.Time, d *group.Answer) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, ready := e.prepare(en, t.Params, now)
	if !ready {
		e.syncFallback(en, t, now)
		return false
	}
	switch {
	case t.At != 0:
		*d = e.adjust(t, at)
	case !e.plain(t, at, d):
		*d = e.take(t, at)
	}
	return true
}

// prepare brings the estimate up to now, and reports whether it is good enough to decide by.
func (e *estimate) prepare(en *Engine, p *step.Params, now time.Time) (at int64, ready bool) {
	e.usedSinceSync = true
	if e.removed || e.limit != p || e.syncedAt.IsZero() || now.Sub(e.syncedAt) > maxEstimateAge {
		return 0, false
	}
	at = e.clock(now)
	if p.Align == step.FirstHit && e.state.ExpiresAt <= at {
		return 0, false // when the next window begins is the store's to say
	}
	e.dropExpiredWindow(at)
	if !en.NoExtrapolation {
		e.extrapolate(at)
	}
	return at, true
}

// syncFallback has the fallback hand out no more than what is left by an estimate that has become too old.
func (e *estimate) syncFallback(en *Engine, t *group.Op, now time.Time) {
	if e.removed || e.limit != t.Params || e.syncedAt.IsZero() || now.Sub(e.syncedAt) <= maxEstimateAge || e.fallbackSynced {
		return
	}
	e.fallbackSynced = true
	left := e.limit.Limit() - e.limit.Used(e.state, e.clock(now))
	en.updateFallback([]group.Op{t.By.Op(e.limit, e.name.key, e.hashTag, 1)}, []group.Answer{{Remaining: max(0, left)}}, now)
}

// clock is what the store's says now, or a little less: the state never wears off early.
func (e *estimate) clock(now time.Time) int64 { return e.at + now.Sub(e.syncedAt).Microseconds() }

// dropExpiredWindow lets go of what was spent in a window that has ended. The store would not count it any more either.
func (e *estimate) dropExpiredWindow(at int64) {
	if e.limit.Kind == step.Window && e.window <= at {
		e.unreported, e.window = 0, 0
	}
}

// extrapolate adds to the state what others are likely to have spent.
func (e *estimate) extrapolate(at int64) {
	if more := int64(e.othersRate*float64(at-e.since)) - e.extrapolated; more > 0 {
		e.extrapolated += more
		e.state, _ = e.limit.Adjust(e.state, nil, at, step.Settlement{At: at, Delta: more})
	}
}

// plain is take for the common case, if it is one.
func (e *estimate) plain(t *group.Op, at int64, d *group.Answer) bool {
	if t.Request.Cost <= 0 || t.Request.Min != 0 || t.Request.MaxDelay != 0 || t.By.ChargeDenied {
		return false
	}
	a, ok := e.takePlain(t.Request.Cost, at)
	if !ok {
		return false
	}
	*d = group.Answer{
		Source: group.SourceEventual, Limit: e.limit.Limit(), Remaining: a.Remaining, At: a.At,
		RetryAfter: a.RetryAfter, ResetAfter: a.ResetAfter,
	}
	if a.RetryAfter == 0 {
		d.Allowed, d.Granted = true, t.Request.Cost
	}
	return true
}

// takePlain takes a cost and nothing else, if the state is a plain one.
func (e *estimate) takePlain(cost, at int64) (a FastAnswer, ok bool) {
	if e.blockedUntil > at {
		return a, false
	}
	p := e.limit
	fresh, value, retry, remaining := p.Fast(e.state.ExpiresAt, e.state.Value, e.state.Shape, at, cost)
	if retry == step.Undecided {
		return a, false
	}
	if retry == step.Fits {
		e.unreported += cost
		e.window = max(e.window, fresh)
		e.state = step.State{ExpiresAt: fresh, Value: value, Shape: p.Shape()}
	}
	return FastAnswer{
		At: at, Remaining: remaining, RetryAfter: time.Duration(retry) * time.Microsecond,
		ResetAfter: time.Duration(max(0, fresh-at)) * time.Microsecond,
	}, true
}

func (e *estimate) take(t *group.Op, at int64) group.Answer {
	p := e.limit
	if e.blockedUntil > at {
		until := time.Duration(e.blockedUntil-at) * time.Microsecond
		return group.Answer{Blocked: true, Source: group.SourceEventual, Limit: p.Limit(), At: at, RetryAfter: until, ResetAfter: until}
	}
	next, a := p.Take(e.state, nil, at, step.Request{
		Cost: t.Request.Cost, Min: t.Request.Min, MaxDelay: t.Request.MaxDelay, Charge: t.By.ChargeDenied,
	})
	if t.Request.Cost > 0 {
		if e.unreported += a.Granted; !a.Allowed && t.By.ChargeDenied {
			e.unreported += p.Used(next, at) - p.Used(e.state, at)
		}
		e.window = max(e.window, next.ExpiresAt)
		e.state = next
	}
	d := group.AnswerOf(p, &a)
	d.Source = group.SourceEventual
	return d
}

// adjust settles or gives back an earlier take.
func (e *estimate) adjust(t *group.Op, at int64) group.Answer {
	p := e.limit
	next, a := p.Adjust(e.state, nil, at, step.Settlement{At: t.At, Delta: t.Request.Cost})
	if t.Request.Cost < 0 && (e.unreported >= 0 || t.At < e.refunded) {
		e.refunded = t.At
	}
	e.unreported += a.Granted
	e.window = max(e.window, e.state.ExpiresAt, next.ExpiresAt)
	e.state = next
	d := group.AnswerOf(p, &a)
	d.Source = group.SourceEventual
	return d
}

// undoEstimate undoes a take of a call that was denied for another reason.
func (en *Engine) undoEstimate(t *group.Op, d *group.Answer, now time.Time) {
	back := t.By.Op(t.Params, t.Key, t.HashTag, -d.Granted)
	back.At = d.At
	var given group.Answer
	if en.decideFromEstimate(&back, now, &given) {
		d.Remaining, d.ResetAfter = given.Remaining, given.ResetAfter
	}
	d.Granted = 0
}

// updateEstimate notes what the store said of a key when it decided a take of it.
func (en *Engine) updateEstimate(t *group.Op, d *group.Answer, answered time.Time) {
	if d.Source != group.SourceStore || !canUseEstimate(t) || t.At != 0 {
		return
	}
	e := en.estimates.keys.add(t, func(name bucketID, tag string) *estimate { return &estimate{name: name, hashTag: tag} })
	if e == nil {
		return
	}
	limit := t.Params
	at := d.At - d.Delay.Microseconds()
	e.mu.Lock()
	if e.limit == limit && at < e.at { // an older answer
		e.mu.Unlock()
		return
	}
	if e.limit != limit {
		e.storeState, e.othersRate = step.State{}, 0
	}
	e.rule, e.limit = t.By, limit
	was := e.storeState.ExpiresAt
	e.storeState = limit.StateFromAnswer(e.storeState, at, d.Remaining, d.ResetAfter.Microseconds())
	e.rebase(at, was, answered)
	e.block(d.Allowed || t.Request.Cost > 1 || t.Request.Min > 1, d.RetryAfter.Microseconds())
	e.mu.Unlock()
	en.startSync()
}

// rebase begins anew from what the store has, and adds what it has not heard of. Of others' takes it has not heard those of
// half an interval in the mean, unless the window is younger; was is when the window before ended.
func (e *estimate) rebase(at, was int64, answered time.Time) {
	e.at, e.syncedAt, e.fallbackSynced, e.extrapolated = at, answered, false, 0
	e.since = at - syncInterval.Microseconds()/2
	if e.limit.Kind == step.Window {
		if e.storeState.ExpiresAt > at {
			was = e.storeState.ExpiresAt - e.limit.Length
		}
		e.since = min(at, max(e.since, was))
	}
	e.dropExpiredWindow(at)
	e.state = e.storeState
	if more := e.unreported + e.inFlight.cost; more != 0 {
		e.state, _ = e.limit.Adjust(e.state, nil, at, step.Settlement{At: at, Delta: more})
	}
}

// block notes that the store denies the key for longer than what was spent explains.
func (e *estimate) block(allowed bool, retry int64) {
	e.blockedUntil = 0
	if allowed {
		return
	}
	const slack = 1000 // more than can come from rounding
	if _, a := e.limit.Take(e.storeState, nil, e.at, step.Request{Cost: 1, DryRun: true}); retry > a.RetryAfter+slack {
		e.blockedUntil = e.at + retry
	}
}
