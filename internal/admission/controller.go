package admission

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/clientip"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// Controller admits requests by a set of rules: each is matched against the set, and all the limits that apply to it are
// decided together, all or nothing.
type Controller struct {
	config  Config
	limiter *sluice.Limiter
	set     func() *rules.Set
	current atomic.Pointer[ruleSet]
	delays  delayQueues
}

// New makes a Controller. The limiter has no rules of its own. The function is asked for the set once per request and may
// return another one at any time.
func New(limiter *sluice.Limiter, set func() *rules.Set, c Config) *Controller {
	return &Controller{config: c, limiter: limiter, set: set}
}

// ruleSet is what is made once for a set of rules, and goes away with it.
type ruleSet struct {
	set      *rules.Set
	ip       *clientip.Finder
	policies quota.Cache
	matches  sync.Pool // of *match
}

// matchedRequest is a request beside its rules, and what was decided. Matches are reused: the keys of takes are in a buffer of
// Matched, and nothing of a match may be used after it was recycled.
type matchedRequest struct {
	of        *ruleSet
	request   ruleRequest
	matched   rules.MatchResult
	decisions []sluice.Decision
	quota.List
	delayed       delayedRequest
	mayBeRefunded func(i int) bool // mayRefund
}

// Try says whether a request has just come, as that of the zero Try, or was queued.
type Try struct {
	// Retried is for a request that was queued and is tried again. It is never queued once more, and charged once.
	Retried bool
	// Stored tells which headers of a queued request were not stored, and what it would have been charged with them. Without
	// it rules that read such a header take the request for another. Nil: all were.
	Stored *rules.Queued
}

var errNoSet = fmt.Errorf("%w: httplimit: RulesMiddleware: the function returned no set", sluice.ErrInvalid)

// Admit decides a request, after it has waited in line if a rule says so. Nothing is written to w: it is asked for the
// adaptive limit that the request has passed, which does not count the time in line. Who may be nil: the request's context
// is asked then. An error is about the request, or a mistake, never about the store; see [WriteError].
func (c *Controller) Admit(w http.ResponseWriter, r *http.Request, who *Identity, try Try) (a Admission, err error) {
	set := c.set()
	if set == nil {
		return a, errNoSet
	}
	m := c.setFor(set).matches.Get().(*matchedRequest)
	m.request.http, m.request.who = r, who
	m.matched.Queued = try.Stored
	err = set.Match(&m.request, &m.matched)
	if len(m.matched.Shadowed) > 0 {
		c.limiter.ReportShadowed(r.Context(), m.matched.Shadowed)
	}
	switch {
	case err != nil:
		m.recycle()
	case m.matched.Outcome == rules.MatchRejected:
		a.Outcome = Rejected
		m.recycle()
	case len(m.matched.Takes) == 0: // no rule matches, it is exempt, or its key has no limit
		if m.matched.Outcome == rules.MatchExempt {
			a.Outcome = Exempt
		}
		m.recycle()
	default:
		err = c.limit(w, r, m, try, &a)
	}
	return a, err
}

// setFor returns what was made for the set. While one set replaces another a few requests still come with the old one,
// for which it is then made anew; that is little work.
func (c *Controller) setFor(set *rules.Set) *ruleSet {
	old := c.current.Load()
	if old != nil && old.set == set {
		return old
	}
	s := &ruleSet{set: set, ip: ClientIP(set)}
	flight := !c.config.ChargeAnyStatus
	s.matches.New = func() any {
		m := &matchedRequest{of: s, request: ruleRequest{ip: s.ip}, matched: rules.MatchResult{Concurrency: flight}}
		m.mayBeRefunded = m.mayRefund
		return m
	}
	c.current.CompareAndSwap(old, s)
	return s
}

// limit decides the takes of a request that rules limit.
func (c *Controller) limit(w http.ResponseWriter, r *http.Request, m *matchedRequest, try Try, a *Admission) error {
	ps := m.prepare(!c.config.ChargeAnyStatus)
	delayed, allowed, err := c.decide(w, r, m, try)
	if err != nil {
		m.recycle()
		return err
	}
	if hasConcurrencyLimit(m.matched.Takes) {
		a.permit = holdPermits(c.limiter, m.matched.Takes, m.decisions)
	}
	if allowed && !delayed && c.mustQueueBehind(m, try) {
		m.refundPlace(r.Context(), c.limiter)
		allowed = false
	}
	a.headers, a.pooled = &c.config.Headers, m
	a.reported = reported{policies: ps, rules: m.List.Rules, decisions: m.decisions}
	if !allowed {
		a.permit.Release(r.Context())
		a.permit = nil
		c.denyOrQueue(m, try, a)
	} else {
		a.Outcome = Allowed
		if !c.config.ChargeAnyStatus {
			a.charges = m.charges(c.limiter, c.set)
		}
	}
	if delayed {
		if allowed {
			m.delayed.release()
		}
		a.noteDelay(&m.delayed)
	}
	return nil
}

// decide has the limiter decide, and the request wait if it has to.
func (c *Controller) decide(w http.ResponseWriter, r *http.Request, m *matchedRequest, try Try) (delayed, allowed bool, err error) {
	if try.Retried {
		m.chargeOnce(&c.delays)
	}
	delayed = isAnyDelayed(c.limiter, m.matched.Takes)
	switch {
	case delayed:
		f := shedTicketOf(w)
		f.wait()
		allowed, err = c.line(r, m, try).waitAll()
		f.resume()
	case try.Retried: // it was reported as denied when it was queued
		if allowed, err = private.DecideQuiet(r.Context(), c.limiter, &m.matched.Takes, &m.decisions); allowed && err == nil {
			private.ReportDecisions(r.Context(), c.limiter, &m.matched.Takes, &m.decisions)
		}
	default:
		allowed, err = c.limiter.Decide(r.Context(), m.matched.Takes, m.decisions)
	}
	return delayed, allowed, err
}

// noteDelay tells of the last line that the request has left.
func (a *Admission) noteDelay(p *delayedRequest) {
	if p.departed.Waited > 0 {
		a.Waited = p.departed.Waited
		if a.Rule == "" {
			a.Rule = p.departed.Rule
		}
	}
}

// line is the request's way through the lines of rules that delay it.
func (c *Controller) line(r *http.Request, m *matchedRequest, try Try) *delayedRequest {
	p := &m.delayed
	p.config, p.limiter, p.queues, p.request, p.retried = &c.config, c.limiter, &c.delays, r, try.Retried
	p.takes, p.out, p.settled = m.matched.Takes, m.decisions, m.mayBeRefunded
	return p
}

// refundPlace gives back what a request was charged that has to stand in line.
func (m *matchedRequest) refundPlace(ctx context.Context, limiter *sluice.Limiter) {
	for i := range m.decisions {
		if m.chargedOnArrival(i) {
			m.decisions[i].Granted = 0 // it stays charged
		}
	}
	back := newRefundable(limiter, m.matched.Takes, m.decisions)
	back.refund(ctx)
}

// mayRefund tells whether a take may be given back when the request is done.
func (m *matchedRequest) mayRefund(i int) bool {
	rule := m.matched.Rules[i]
	return len(rule.ChargeStatus) > 0 || rule.ActualCost != nil
}

// prepare makes room for the decisions and lists the policies that the takes are about. It marks the takes that are
// settled when the request is done, if any are.
func (m *matchedRequest) prepare(settles bool) *quota.Policies {
	takes := m.matched.Takes
	for i := range takes {
		takes[i].Settles = settles && m.mayRefund(i) && takes[i].EffectiveLimit().Algorithm != sluice.Concurrency
	}
	if cap(m.decisions) < len(takes) {
		m.decisions = make([]sluice.Decision, len(takes))
	}
	m.decisions = m.decisions[:len(takes)]
	return m.List.Of(&m.of.policies, takes)
}

// recycle returns the match for another request to use.
func (m *matchedRequest) recycle() {
	m.matched.Clear()
	m.request.http, m.request.who, m.delayed.request = nil, nil, nil
	m.of.matches.Put(m)
}
