package admission

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/shaper"
)

// DelayEvent is a request's departure from the line of a rule that delays requests.
type DelayEvent struct {
	Rule       string
	EnqueuedAt time.Time     // when it took its place in the line
	ReleasedAt time.Time     // when it went on to the handler, or to the line of another rule
	Waited     time.Duration // in all lines up to now; 0 if it could go on at once
}

// delayQueues are where requests wait. Who may leave a line is the store's to say, since others share the limit: only the first
// of a line asks, for what may leave now, and asks again when it is told to.
type delayQueues struct {
	shaper.Queues
	uncharged sync.Map // *sluice.Rule → *sluice.Rule that does not charge what it refuses
}

// delayedRequest is a request's way through its lines. Takes that delay nobody are decided when it comes, and given back if it
// does not get through. It may be used again; its slices are the caller's.
type delayedRequest struct {
	config  *Config
	limiter *sluice.Limiter
	queues  *delayQueues
	request *http.Request
	retried bool // it was queued, and reported as denied then
	takes   []sluice.Take
	out     []sluice.Decision // out[i] is of takes[i]; what nothing was granted of was not charged
	// settled tells that a take may be given back when the request is done, so that others may follow sooner.
	settled func(i int) bool

	began     time.Time
	waited    time.Duration
	delays    []delayedTake // in the order of the takes
	undelayed []int         // the takes that delay nobody
	permits   []int         // the takes of limits on what is in flight, which begins with the departure
	place     shaper.Waiter
	last      *delayedTake // whose line the place is in

	departed DelayEvent // the last
}

// delayedTake is a take for which the request stands in line.
type delayedTake struct {
	at       int // in takes
	rule     *sluice.Rule
	maxDelay time.Duration // that the rule has
}

// begin prepares the takes: those that delay are made as the first of a line makes them.
func (p *delayedRequest) begin() {
	p.began, p.waited, p.last, p.departed = time.Now(), 0, nil, DelayEvent{}
	p.delays, p.undelayed, p.permits = p.delays[:0], p.undelayed[:0], p.permits[:0]
	clear(p.out)
	for i := range p.takes {
		if t := &p.takes[i]; isDelayed(p.limiter, t) {
			p.delays = append(p.delays, delayedTake{i, t.Rule, t.MaxDelay})
			p.queues.departing(t)
		} else if t.EffectiveLimit().Algorithm == sluice.Concurrency {
			p.permits = append(p.permits, i)
		} else {
			p.undelayed = append(p.undelayed, i)
		}
	}
}

// departing changes a take to one for what may leave now. A place in the store's queue would be its last word, so a queue
// is asked for one that comes at once.
func (l *delayQueues) departing(t *sluice.Take) {
	t.MaxDelay = 0
	if t.EffectiveLimit().Algorithm == sluice.LeakyQueue {
		t.MaxDelay = time.Microsecond
	}
	if t.Rule.ChargeDenied {
		l.withoutCharge(t)
	}
}

// withoutCharge changes a take to one of a rule that does not charge what it denies.
func (l *delayQueues) withoutCharge(t *sluice.Take) {
	twin, ok := l.uncharged.Load(t.Rule) // to be told to wait is no refusal
	if !ok {
		plain := *t.Rule
		plain.ChargeDenied = false
		twin, _ = l.uncharged.LoadOrStore(t.Rule, &plain)
	}
	t.Limit, t.Rule = t.EffectiveLimit(), twin.(*sluice.Rule)
}

// waitAll returns true when all takes are allowed and the request is the first of its last line: release has to be called.
// It returns false if the request is denied, and out says why. Then, and after an error, nothing is charged.
func (p *delayedRequest) waitAll() (bool, error) {
	p.begin()
	ctx := p.request.Context()
	ok, err := true, error(nil)
	for n := range p.delays {
		if n > 0 {
			p.release()
		}
		if ok, err = p.waitOne(&p.delays[n]); !ok || err != nil {
			break
		}
	}
	if ok && err == nil {
		err = ctx.Err() // who has left in the meantime does not need what was granted
	}
	if !ok || err != nil {
		p.refundAll()
	}
	for _, q := range p.delays {
		p.takes[q.at].Rule = q.rule
	}
	if err != nil {
		return false, err
	}
	if ok {
		p.describe()
	}
	if ok || !p.retried {
		private.ReportDecisions(ctx, p.limiter, &p.takes, &p.out)
	}
	return ok, nil
}

// waitOne waits in the line of a take until it is granted.
func (p *delayedRequest) waitOne(q *delayedTake) (bool, error) {
	t := &p.takes[q.at]
	shape, patience := p.shape(q)
	name := shaper.ID{Rule: t.Rule.Name, Key: t.Key}
	if retry, ok := p.queues.Enqueue(&p.place, name, shape, t.Cost, patience); !ok {
		p.denyQueueFull(q, retry)
		return false, nil
	}
	first := p.last == nil
	p.last = q
	if first {
		if done, ok, err := p.decideUndelayed(q); done {
			return ok, err
		}
	}
	for {
		if err := p.place.Wait(p.request.Context()); err != nil {
			return false, p.denyTooLate(q, err)
		}
		ok, err := p.askLast(q)
		if ok || err != nil || isFinal(&p.out[q.at]) || p.denies(p.permits) {
			p.waited = time.Since(p.began)
			return ok, err
		}
		if err := p.place.Postpone(p.out[q.at].RetryAfter); err != nil {
			return false, p.denyTooLate(q, err)
		}
	}
}

// isFinal tells that a denial is not about when.
func isFinal(d *sluice.Decision) bool { return d.ExceedsLimit || d.Source == sluice.SourceFailClosed }

// denyTooLate turns a turn that comes too late into a denial.
func (p *delayedRequest) denyTooLate(q *delayedTake, err error) error {
	if !errors.Is(err, shaper.ErrDeadlineTooSoon) {
		return err
	}
	p.denyQueueFull(q, p.place.RetryAfter)
	return nil
}

// decideUndelayed decides the takes that delay nobody, together with the first line's if that is free. It reports whether that was
// all there is to do.
func (p *delayedRequest) decideUndelayed(q *delayedTake) (done, ok bool, err error) {
	d := &p.out[q.at]
	if p.place.CanRelease() && !p.chargesDenied() {
		if ok, err = p.askFirst(q); ok || err != nil || p.denies(p.undelayed) || p.denies(p.permits) || isFinal(d) {
			return true, ok, err
		}
		retry := d.RetryAfter
		*d = sluice.Decision{}
		for _, i := range p.permits {
			p.out[i] = sluice.Decision{}
		}
		if err = p.place.Postpone(retry); err != nil {
			return true, false, p.denyTooLate(q, err)
		}
	}
	if len(p.undelayed) > 0 {
		ok, err = p.ask(p.undelayed...)
		return !ok || err != nil, ok, err
	}
	return false, true, nil
}

func (p *delayedRequest) denies(which []int) bool {
	for _, i := range which {
		if !p.out[i].Allowed {
			return true
		}
	}
	return false
}

// chargesDenied tells that asking for all and then for a part would charge something twice.
func (p *delayedRequest) chargesDenied() bool {
	for _, i := range p.undelayed {
		if p.takes[i].Rule.ChargeDenied {
			return true
		}
	}
	return false
}

// askFirst asks for the first line's take and all that delay nobody.
func (p *delayedRequest) askFirst(q *delayedTake) (bool, error) {
	if len(p.delays) > 1 {
		return p.ask(append(slices.Clone(p.undelayed), q.at)...)
	}
	allowed, err := private.DecideQuiet(p.request.Context(), p.limiter, &p.takes, &p.out)
	if !allowed {
		clearGrants(p.out)
	}
	return allowed, err
}

// askLast asks for a line's take, and in the last line for the slots.
func (p *delayedRequest) askLast(q *delayedTake) (bool, error) {
	if len(p.permits) == 0 || q != &p.delays[len(p.delays)-1] {
		return p.ask(q.at)
	}
	return p.ask(append(slices.Clone(p.permits), q.at)...)
}

// ask has the limiter decide some of the takes, all or nothing.
func (p *delayedRequest) ask(which ...int) (bool, error) {
	takes, out := make([]sluice.Take, len(which)), make([]sluice.Decision, len(which))
	for n, i := range which {
		takes[n] = p.takes[i]
	}
	allowed, err := private.DecideQuiet(p.request.Context(), p.limiter, &takes, &out)
	if !allowed {
		clearGrants(out)
	}
	for n, i := range which {
		p.out[i] = out[n]
	}
	return allowed, err
}

// clearGrants notes that nothing is to be given back: what was denied was denied as a whole.
func clearGrants(ds []sluice.Decision) {
	for i := range ds {
		ds[i].Granted = 0
	}
}

// shape is how a take's line moves, and how long the request would wait in it.
func (p *delayedRequest) shape(q *delayedTake) (shaper.Shape, time.Duration) {
	limit := p.takes[q.at].EffectiveLimit()
	s := shaper.Shape{Interval: interval(limit)}
	patience := q.maxDelay
	if limit.Algorithm == sluice.LeakyQueue {
		s.MaxBacklog = time.Duration(limit.Max()) * s.Interval
		s.Paced = p.settled == nil || !p.settled(q.at)
		if patience == 0 {
			patience = s.MaxBacklog
		}
	}
	if p.config.MaxDelay > 0 {
		patience = min(patience, p.config.MaxDelay-time.Since(p.began))
	}
	if deadline, ok := p.request.Context().Deadline(); ok {
		patience = min(patience, time.Until(deadline))
	}
	return s, max(0, patience)
}

// interval is how long one takes at the sustained rate, rounded up.
func interval(l *sluice.Limit) time.Duration {
	return (l.Window + time.Duration(l.Count) - 1) / time.Duration(l.Count)
}

// denyQueueFull denies the request for want of a place.
func (p *delayedRequest) denyQueueFull(q *delayedTake, retry time.Duration) {
	p.out[q.at] = sluice.Decision{
		Limit: p.takes[q.at].EffectiveLimit().Max(), RetryAfter: retry, ResetAfter: retry,
	}
}

// refundAll leaves the line and gives back what was charged. Takes that were not asked for would not have been charged either.
func (p *delayedRequest) refundAll() {
	p.place.Cancel()
	private.HoldPermits(p.limiter, &p.takes, &p.out).(*sluice.Permit).Release(p.request.Context())
	back := newRefundable(p.limiter, p.takes, p.out)
	back.refund(p.request.Context())
	clearGrants(p.out)
	for i := range p.out {
		d := &p.out[i]
		if *d == (sluice.Decision{}) {
			*d = sluice.Decision{Allowed: true, Source: sluice.SourceDenyCache, Limit: p.takes[i].EffectiveLimit().Max()}
		}
	}
}

// describe adds to the last line's decision what the store does not know: who waits here.
func (p *delayedRequest) describe() {
	d, behind := &p.out[p.last.at], p.place.Backlog()
	d.Delay = p.waited
	d.Remaining = max(0, d.Remaining-int64(behind/interval(p.takes[p.last.at].EffectiveLimit())))
	d.ResetAfter += behind
}

// release leaves the line, and stamps when.
func (p *delayedRequest) release() {
	p.place.SkipSpacing = p.out[p.last.at].Source >= sluice.SourceFailOpen // nobody counts
	left := p.place.Release()
	p.departed = DelayEvent{p.last.rule.Name, p.place.EnqueuedAt, left, p.waited}
	if p.config.OnDelay != nil {
		p.config.OnDelay(p.request, p.departed)
	}
}
