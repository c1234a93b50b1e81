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

// DelayEvent is the release of a request from the delay queue of a rule.
type DelayEvent struct {
	Rule       string
	EnqueuedAt time.Time     // when the request entered the delay queue
	ReleasedAt time.Time     // when it went on to the handler or to the delay queue of another rule
	Waited     time.Duration // total delay in all delay queues so far; 0 if it was not delayed
}

// delayQueues holds the delay queues of a limiter. The store decides when a request may leave, because other instances
// share the limit. Only the first request of a queue calls the store, for a grant without delay, and again after RetryAfter.
type delayQueues struct {
	shaper.Queues
	uncharged sync.Map // *sluice.Rule → copy of the *sluice.Rule without ChargeDenied
}

// delayedRequest passes one request through its delay queues. Takes without delay are decided when the request arrives, and
// refunded if it is not released in the end. It may be reused; its slices belong to the caller.
type delayedRequest struct {
	config  *Config
	limiter *sluice.Limiter
	queues  *delayQueues
	request *http.Request
	retried bool // it was queued, and was reported as denied then
	takes   []sluice.Take
	out     []sluice.Decision // out[i] is the decision of takes[i]; with Granted 0 it was not charged
	// settled reports whether take i may be refunded when the request is done, so that the next request may follow sooner.
	settled func(i int) bool

	began     time.Time
	waited    time.Duration
	delays    []delayedTake // in the order of the takes
	undelayed []int         // indexes of takes without delay
	permits   []int         // indexes of takes of concurrency limits, which are acquired on release
	place     shaper.Waiter
	last      *delayedTake // the take whose delay queue place is in

	departed DelayEvent // the last release
}

// delayedTake is a take with a delay queue.
type delayedTake struct {
	at       int // index in takes
	rule     *sluice.Rule
	maxDelay time.Duration // max_delay of the rule
}

// begin classifies the takes, and prepares delayed ones for the calls that the first request of a queue makes.
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

// departing changes a take so that it is granted only without delay. A leaky queue would otherwise grant a later place,
// which is final, so its MaxDelay is the minimum, 1 µs.
func (l *delayQueues) departing(t *sluice.Take) {
	t.MaxDelay = 0
	if t.EffectiveLimit().Algorithm == sluice.LeakyQueue {
		t.MaxDelay = time.Microsecond
	}
	if t.Rule.ChargeDenied {
		l.withoutCharge(t)
	}
}

// withoutCharge replaces the rule of a take by a copy that does not charge denied requests.
func (l *delayQueues) withoutCharge(t *sluice.Take) {
	twin, ok := l.uncharged.Load(t.Rule) // a denial that only delays the request is not charged
	if !ok {
		plain := *t.Rule
		plain.ChargeDenied = false
		twin, _ = l.uncharged.LoadOrStore(t.Rule, &plain)
	}
	t.Limit, t.Rule = t.EffectiveLimit(), twin.(*sluice.Rule)
}

// waitAll reports whether the request is allowed. It blocks until all takes are allowed and the request is the first of its
// last delay queue; the caller must call release then. If it returns false, out contains the denials. After false or an
// error nothing is charged.
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
		err = ctx.Err() // the client may have disconnected; the grants are refunded then
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

// waitOne waits in the delay queue of a take until the take is granted or denied.
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

// denyTooLate converts the error for a delay beyond the deadline to a denial.
func (p *delayedRequest) denyTooLate(q *delayedTake, err error) error {
	if !errors.Is(err, shaper.ErrDeadlineTooSoon) {
		return err
	}
	p.denyQueueFull(q, p.place.RetryAfter)
	return nil
}

// decideUndelayed decides the takes without delay, together with the take of the first delay queue if that is empty. done
// reports whether the request needs no waiting.
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

// chargesDenied reports whether deciding all takes and then a part of them would charge a denied take twice.
func (p *delayedRequest) chargesDenied() bool {
	for _, i := range p.undelayed {
		if p.takes[i].Rule.ChargeDenied {
			return true
		}
	}
	return false
}

// askFirst decides the take of the first delay queue together with all takes without delay.
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

// askLast decides the take of a delay queue and, in the last queue, acquires the permits.
func (p *delayedRequest) askLast(q *delayedTake) (bool, error) {
	if len(p.permits) == 0 || q != &p.delays[len(p.delays)-1] {
		return p.ask(q.at)
	}
	return p.ask(append(slices.Clone(p.permits), q.at)...)
}

// ask decides some of the takes, all or nothing.
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

// clearGrants marks decisions as not refundable, because a denied call charges nothing.
func clearGrants(ds []sluice.Decision) {
	for i := range ds {
		ds[i].Granted = 0
	}
}

// shape returns the parameters of a take's delay queue and the maximum time that the request may wait in it.
func (p *delayedRequest) shape(q *delayedTake) (shaper.Shape, time.Duration) {
	limit := p.takes[q.at].EffectiveLimit()
	s := shaper.Shape{Interval: interval(limit)}
	s.Burst = time.Duration(limit.Max()) * s.Interval
	patience := q.maxDelay
	if limit.Algorithm == sluice.LeakyQueue {
		s.MaxBacklog = s.Burst
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

// interval returns Window/Count, rounded up.
func interval(l *sluice.Limit) time.Duration {
	return (l.Window + time.Duration(l.Count) - 1) / time.Duration(l.Count)
}

// denyQueueFull denies the request because it would have to wait too long.
func (p *delayedRequest) denyQueueFull(q *delayedTake, retry time.Duration) {
	p.out[q.at] = sluice.Decision{
		Limit: p.takes[q.at].EffectiveLimit().Max(), RetryAfter: retry, ResetAfter: retry,
	}
}

// refundAll leaves the delay queue and refunds all charges. Takes that were not decided are reported as allowed.
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

// describe adds the local delay queue, which the store does not see, to the decision of the last delayed take.
func (p *delayedRequest) describe() {
	d, behind := &p.out[p.last.at], p.place.Backlog()
	d.Delay = p.waited
	d.Remaining = max(0, d.Remaining-int64(behind/interval(p.takes[p.last.at].EffectiveLimit())))
	d.ResetAfter += behind
}

// release leaves the delay queue and records the time.
func (p *delayedRequest) release() {
	p.place.SkipSpacing = p.out[p.last.at].Source >= sluice.SourceFailOpen // nothing is counted
	left := p.place.Release()
	p.departed = DelayEvent{p.last.rule.Name, p.place.EnqueuedAt, left, p.waited}
	if p.config.OnDelay != nil {
		p.config.OnDelay(p.request, p.departed)
	}
}
