// Package admission applies limits to one HTTP request: it matches the rules, decides the outcome, delays the request if a
// rule requires it, holds permits while the request is served, and settles the charges when it is done. Its callers, the
// HTTP middleware, the gateway and forward authentication, write the responses.
package admission

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/clientip"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// Config is the configuration of a caller. The zero Config sends no quota headers and queues no requests.
type Config struct {
	Headers quota.Headers
	// MaxDelay is the maximum delay of a request; 0 means the rule's max_delay or the length of the leaky queue.
	MaxDelay time.Duration
	// ChargeAnyStatus is for callers that do not see how a request ends: no charge is refunded, and concurrency limits are
	// skipped.
	ChargeAnyStatus bool
	// Queues enables the outcome [Queued]: a request is queued if every rule that denies it has on_limit: queue. It is
	// denied if another rule denies it, if its cost exceeds the limit, or if the store is unavailable. If several such rules
	// apply, the request is queued by the first rule that keeps the order of its keys, whether or not that rule denies it,
	// so that ordered requests stay in one subqueue, and otherwise by the first rule that denies it.
	Queues bool
	// HasPending reports whether requests of the key are queued by the rule, which keeps the order of its keys. If so,
	// further requests of the key are queued even if the limit allows them, because they would overtake. Nil means false.
	HasPending func(rule, key string) bool
	// OnDelay is called for each request that a delay queue releases. It may be nil.
	OnDelay func(r *http.Request, d DelayEvent)
	// ChargeIf reports, for [Keyed], whether a status is charged. Nil charges every status.
	ChargeIf func(status int) bool
}

// Outcome is the outcome of a request.
type Outcome uint8

const (
	Unlimited Outcome = iota // no rule matches
	Exempt                   // on the allow list
	Allowed
	Denied
	Queued   // to be stored in the durable queue, see Admission.Queue
	Rejected // rejected by the rule set before any limit
)

// Admission is the outcome of one request. The caller calls SetHeaders or WriteDenial if the client is to see the quota,
// and then exactly once Serve or Done.
type Admission struct {
	Outcome      Outcome
	Rule         string        // the rule that denied, queued or delayed it; of several, the most restrictive
	RetryAfter   time.Duration // set if it is Denied
	ExceedsLimit bool          // it is Denied because its cost exceeds the limit: no retry can succeed
	Waited       time.Duration // time in delay queues
	Queue        *QueueTarget  // set if it is Queued

	headers  *quota.Headers
	reported reported
	custom   customDenial
	pooled   recycler // owns the memory of reported; nil: not pooled
	permit   *sluice.Permit
	charges  *statusCharges // charges under a rule set
	keyed    keyedCharge
}

// reported holds the decisions that headers and bodies describe.
type reported struct {
	policies  *quota.Policies // nil: no decisions
	rules     []*sluice.Rule
	decisions []sluice.Decision
	one       [1]sluice.Decision // used instead of decisions if there is only one
}

// recycler is pooled memory of one request.
type recycler interface{ recycle() }

func (t *reported) all() []sluice.Decision {
	if t.decisions == nil {
		return t.one[:]
	}
	return t.decisions
}

// recycle returns pooled memory, which other requests may use from then on.
func (a *Admission) recycle() {
	if a.pooled != nil {
		a.reported.policies, a.reported.rules, a.reported.decisions = nil, nil, nil
		a.pooled.recycle()
		a.pooled = nil
	}
}

// SetHeaders sets the quota headers of the response to an allowed, denied or queued request.
func (a *Admission) SetHeaders(h http.Header, r *http.Request) {
	if a.reported.policies == nil {
		return
	}
	a.headers.Set(h, r, a.reported.policies, a.reported.all(), a.Outcome == Denied)
	if a.Outcome == Allowed {
		quota.SetDelay(h, a.Waited)
	}
}

// Denial returns a description of the denied request. It is a copy and stays valid after Done.
func (a *Admission) Denial() *quota.Denial {
	d := quota.DenialOf(slices.Clone(a.reported.rules), slices.Clone(a.reported.all()))
	return &d
}

// WriteDenial writes the response to a denied request, headers included.
func (a *Admission) WriteDenial(w http.ResponseWriter, r *http.Request) {
	a.SetHeaders(w.Header(), r)
	if a.custom.rule != nil {
		a.custom.write(w, r, &a.reported)
		return
	}
	WriteDenial(w, r, a.reported.rules, a.reported.policies, a.reported.all())
}

// Serve calls a handler for an allowed request. Afterwards it settles the charges and releases the permits or, if the
// handler has hijacked the connection, releases them when the connection is closed.
func (a *Admission) Serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	a.recycle() // first, because the handler may run for long
	if a.permit != nil {
		next = &permitHandler{next, a.permit}
	}
	switch charges, keyed := a.charges, a.keyed; {
	case charges != nil:
		serveOutcome(next, w, r, charges.reader, func(status int) { charges.settle(r.Context(), status) })
	case keyed.chargeIf != nil:
		serveOutcome(next, w, r, nil, func(status int) { keyed.settle(r.Context(), status) })
	default:
		next.ServeHTTP(w, r)
	}
}

// Done ends a request without Serve: it releases the permits and settles the charges by the status.
func (a *Admission) Done(ctx context.Context, status int) {
	a.recycle()
	a.release(ctx)
	switch {
	case a.charges != nil:
		a.charges.settle(ctx, status)
	case a.keyed.chargeIf != nil:
		a.keyed.settle(ctx, status)
	}
}

// release releases the permits of a request.
func (a *Admission) release(ctx context.Context) {
	if a.permit != nil {
		a.permit.Release(ctx)
		a.permit = nil
	}
}

// keyedCharge is the charge under the rules of a limiter, which do not specify the charged statuses themselves.
type keyedCharge struct {
	refundable
	chargeIf func(status int) bool // nil: never refunded
}

func (c *keyedCharge) settle(ctx context.Context, status int) {
	if !c.chargeIf(status) {
		c.refund(ctx)
	}
}

// Controller admits requests by a rule set: it matches each request against the set and decides all limits that apply
// together, all or nothing.
type Controller struct {
	config  Config
	limiter *sluice.Limiter
	set     func() *rules.Set
	current atomic.Pointer[ruleSet]
	delays  delayQueues
}

// New returns a Controller. The limiter must have no rules. The function set is called once per request and may return
// another set at any time.
func New(limiter *sluice.Limiter, set func() *rules.Set, c Config) *Controller {
	return &Controller{config: c, limiter: limiter, set: set}
}

// ruleSet holds data derived from a rule set. It is replaced with the set.
type ruleSet struct {
	set      *rules.Set
	ip       *clientip.Finder
	policies quota.Cache
	matches  sync.Pool // *matchedRequest
}

// Try describes an attempt to admit a request. The zero Try is for a request that has just arrived.
type Try struct {
	// Retried is set for an attempt to deliver a queued request. The request is not queued again, and charged once.
	Retried bool
	// Stored describes the headers of a queued request that were not stored, and its charges with them. Without it, rules
	// that read such a header would match differently. Nil: all headers were stored.
	Stored *rules.Queued
}

var errNoSet = fmt.Errorf("%w: httplimit: RulesMiddleware: set function returned nil", sluice.ErrInvalid)

// Admit decides a request and blocks while a rule delays it. It writes nothing to w, which it only uses to find the adaptive
// limit that admitted the request: the time in delay queues is excluded from its measurement. A nil identity means that of
// the request's context. Errors are about the request or its configuration, never about the store; see [WriteError].
func (c *Controller) Admit(w http.ResponseWriter, r *http.Request, identity *Identity, try Try) (a Admission, err error) {
	set := c.set()
	if set == nil {
		return a, errNoSet
	}
	m := c.setFor(set).matches.Get().(*matchedRequest)
	m.request.http, m.request.who = r, identity
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

// setFor returns the ruleSet of a set. While one set replaces another, concurrent requests may still use the old one, whose
// ruleSet is then created again, which is cheap.
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
		a.release(r.Context())
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

// decide calls the limiter, and delays the request if a rule requires it.
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

// noteDelay records the total delay, and the rule of the last delay queue.
func (a *Admission) noteDelay(p *delayedRequest) {
	if p.departed.Waited > 0 {
		a.Waited = p.departed.Waited
		if a.Rule == "" {
			a.Rule = p.departed.Rule
		}
	}
}

// line prepares the delayedRequest of a match.
func (c *Controller) line(r *http.Request, m *matchedRequest, try Try) *delayedRequest {
	p := &m.delayed
	p.config, p.limiter, p.queues, p.request, p.retried = &c.config, c.limiter, &c.delays, r, try.Retried
	p.takes, p.out, p.settled = m.matched.Takes, m.decisions, m.mayBeRefunded
	return p
}

// mustQueueBehind reports whether an allowed request must be queued behind others of its key.
func (c *Controller) mustQueueBehind(m *matchedRequest, try Try) bool {
	if !c.config.Queues || c.config.HasPending == nil || try.Retried { // a retried request is the first of its subqueue
		return false
	}
	for i, rule := range m.matched.Rules {
		if m.keepsOrder(i) && c.config.HasPending(rule.Name, m.matched.Takes[i].Key) {
			return true
		}
	}
	return false
}

// denyOrQueue sets the outcome of a request over the limit: queued or denied.
func (c *Controller) denyOrQueue(m *matchedRequest, try Try, a *Admission) {
	if try.Retried {
		for i := range m.decisions {
			if d := &m.decisions[i]; m.matched.Takes[i].Cost == 0 {
				d.Allowed, d.RetryAfter = true, 0 // charged on arrival, so it cannot deny
			}
		}
	} else if c.config.Queues {
		if t := m.queueTarget(); t != nil {
			t.Denied = a.reported.policies.AppendDenied(nil, m.decisions)
			a.Outcome, a.Rule, a.Queue = Queued, t.Rule, t
			return
		}
	}
	tightest := sluice.MostRestrictive(m.decisions)
	d := &m.decisions[tightest]
	a.Outcome, a.Rule, a.RetryAfter, a.ExceedsLimit = Denied, m.List.Rules[tightest].Name, d.RetryAfter, d.ExceedsLimit
	if rule := m.matched.Rules[tightest]; hasCustomDenial(rule) && !d.ExceedsLimit && d.Source != sluice.SourceFailClosed {
		a.custom = customDenial{rule, m.matched.Takes[tightest].EffectiveLimit()}
	}
}

func hasCustomDenial(r *rules.Rule) bool {
	return r.Denial.Status != 0 || r.Denial.Message != "" || r.Denial.Body != ""
}
