package remote

import (
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// estimates holds one local estimate per key for rules with AccuracyEventual: the store's state at the last sync, plus
// local usage since then, plus an extrapolation of other instances' usage. Every syncInterval it reports local usage to
// the store and reads back the total; see sync.
//
// Instances exchange only usage, never decisions, and reported usage is charged regardless of the limit: the excess
// makes the balance of a bucket negative, or counts in the next window. If the excess were forgiven, each instance
// would admit the whole rate.
//
// Every instance sees the usage of others after at most [Staleness], so that all together admit at most limit + offered
// rate × Staleness. Because of the extrapolation it is much less under a steady load.
//
// The first take of a key, and the first after a sync interval without takes, is decided at the store: a rare key costs
// no more calls than with AccuracyExact.
type estimates struct {
	keys      keyMap[estimate]
	startedAt time.Time

	mu   sync.Mutex // guards runs
	runs bool       // syncing is running
}

// maxEstimateAge is the maximum age of an estimate while the store is unavailable. After that the rules' fail modes
// decide.
const maxEstimateAge = 5 * syncInterval

// estimate is the local estimate of one key. Times are those of the store clock, in microseconds.
type estimate struct {
	name    bucketID
	hashTag string

	mu             sync.Mutex // guards the fields below
	removed        bool       // no longer in estimates
	usedSinceSync  bool       // there was a take since the last sync
	fallbackSynced bool       // the fallback has the remaining quota
	rule           *group.Rule
	limit          *step.Params

	syncedAt     time.Time  // local time of the store's last reply
	at           int64      // store clock at that decision; it is now at least at + the time since syncedAt
	storeState   step.State // the store's state then
	state        step.State // storeState plus local usage and extrapolation
	blockedUntil int64      // end of a block of the key

	unreported   int64   // local usage that is not reported
	window       int64   // end of the window of that usage
	refunded     int64   // if unreported is negative: time of the earliest refunded take
	inFlight     report  // report in progress, or perhaps lost
	othersRate   float64 // usage of other instances per microsecond
	since        int64   // start of the extrapolation
	extrapolated int64   // extrapolated usage in state
}

// report is local usage as reported to the store.
type report struct {
	cost, at int64
	id       uint64 // set once the report may have been lost
}

// CanEstimate reports whether limits with these numbers can be decided from an estimate: windows that are not soft,
// counters without sub-windows, and buckets with continuous refill.
func CanEstimate(p *step.Params) bool {
	return p.Kind == step.Window && p.SoftExcess == 0 || p.Kind == step.Counter || p.Kind == step.Bucket && !p.Queue && !p.HasInitial
}

// drop deletes the estimate of a key that was reset or blocked.
func (v *estimates) drop(r *group.Rule, key string) {
	v.keys.each(r, key, func(e *estimate) bool { return !e.remove() })
}

// dropRule is like drop for all keys of a rule.
func (v *estimates) dropRule(r *group.Rule) {
	v.keys.each(nil, "", func(e *estimate) bool { return e.name.rule != r.Name || !e.remove() })
}

// remove marks the estimate as removed. It reports whether it did, which is always true.
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

// decideFromEstimate decides the take from the estimate of its key, and reports whether it could. Reservations and
// their settlements need the store, which has the marks for refunds, because another instance may settle.
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

// prepare updates the estimate to now and reports whether it is recent enough to decide.
func (e *estimate) prepare(en *Engine, p *step.Params, now time.Time) (at int64, ready bool) {
	e.usedSinceSync = true
	if e.removed || e.limit != p || e.syncedAt.IsZero() || now.Sub(e.syncedAt) > maxEstimateAge {
		return 0, false
	}
	at = e.clock(now)
	if p.Align == step.FirstHit && e.state.ExpiresAt <= at {
		return 0, false // the store determines the start of the next window
	}
	e.dropExpiredWindow(at)
	if !en.NoExtrapolation {
		e.extrapolate(at)
	}
	return at, true
}

// syncFallback sets the fallback to the remaining quota of an estimate that has become too old.
func (e *estimate) syncFallback(en *Engine, t *group.Op, now time.Time) {
	if e.removed || e.limit != t.Params || e.syncedAt.IsZero() || now.Sub(e.syncedAt) <= maxEstimateAge || e.fallbackSynced {
		return
	}
	e.fallbackSynced = true
	left := e.limit.Limit() - e.limit.Used(e.state, e.clock(now))
	en.updateFallback([]group.Op{t.By.Op(e.limit, e.name.key, e.hashTag, 1)}, []group.Answer{{Remaining: max(0, left)}}, now)
}

// clock returns the store clock, or slightly less, so that usage never expires early.
func (e *estimate) clock(now time.Time) int64 { return e.at + now.Sub(e.syncedAt).Microseconds() }

// dropExpiredWindow discards unreported usage of an ended window, which the store would not count any more either.
func (e *estimate) dropExpiredWindow(at int64) {
	if e.limit.Kind == step.Window && e.window <= at {
		e.unreported, e.window = 0, 0
	}
}

// extrapolate adds the estimated usage of other instances to the state.
func (e *estimate) extrapolate(at int64) {
	if more := int64(e.othersRate*float64(at-e.since)) - e.extrapolated; more > 0 {
		e.extrapolated += more
		e.state, _ = e.limit.Adjust(e.state, nil, at, step.Settlement{At: at, Delta: more})
	}
}

// plain is take for the common case. It reports whether it decided.
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

// takePlain takes a cost without options if the state allows the fast path.
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

// adjust settles or refunds an earlier take.
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

// undoEstimate undoes a take, because another take of its call was denied.
func (en *Engine) undoEstimate(t *group.Op, d *group.Answer, now time.Time) {
	back := t.By.Op(t.Params, t.Key, t.HashTag, -d.Granted)
	back.At = d.At
	var given group.Answer
	if en.decideFromEstimate(&back, now, &given) {
		d.Remaining, d.ResetAfter = given.Remaining, given.ResetAfter
	}
	d.Granted = 0
}

// updateEstimate updates the estimate of a key from a decision of the store.
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
	if e.limit == limit && at < e.at { // an older decision
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

// rebase restarts the estimate from storeState plus local usage that the store does not have. The store lacks on
// average half an interval of other instances' usage, or less in a younger window. was is the end of the previous
// window.
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

// block sets blockedUntil if the store denies the key for longer than its usage explains.
func (e *estimate) block(allowed bool, retry int64) {
	e.blockedUntil = 0
	if allowed {
		return
	}
	const slack = 1000 // more than rounding errors
	if _, a := e.limit.Take(e.storeState, nil, e.at, step.Request{Cost: 1, DryRun: true}); retry > a.RetryAfter+slack {
		e.blockedUntil = e.at + retry
	}
}
