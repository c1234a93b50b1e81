// Package admission takes one HTTP request from the rules that match it to what it has cost in the end. It decides what
// becomes of the request, has it wait for its turn where a rule says so, holds what is limited while it is served, and
// settles with the limiter when it is done. Edges ask it and write the answer themselves.
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

// Config is what edges may choose. The zero Config sends no headers with numbers and queues nothing.
type Config struct {
	Headers quota.Headers
	// MaxDelay is the longest that a request waits for its turn. 0: as long as the queue is, or as the rule says.
	MaxDelay time.Duration
	// ChargeAnyStatus is for edges that never learn how a request ends: what was charged stays charged, and limits on what
	// is in flight do not apply.
	ChargeAnyStatus bool
	// Queues says that there is a queue: a request is [Queued] when every rule that denies it says on_limit: queue. If
	// another rule denies it too, or its cost can never fit, or nobody could count, it is denied as ever. Where several such
	// rules apply it is queued by the first that keeps the order of its keys, whether or not that one denies it, so that
	// what is in order stays in one line; and otherwise by the first that denies it.
	Queues bool
	// HasPending reports whether queued requests of a rule that keeps the order of its keys wait: while they do, another
	// request of the key is queued though there is room for it, since it would overtake them. Nil: nothing waits.
	HasPending func(rule, key string) bool
	// OnDelay is told of each request that leaves the line of a rule that delays requests. Nil: nobody is.
	OnDelay func(r *http.Request, d DelayEvent)
	// ChargeIf says for [Keyed] which outcomes are charged. Nil: all are.
	ChargeIf func(status int) bool
}

// Outcome is what becomes of a request.
type Outcome uint8

const (
	Unlimited Outcome = iota // no rule limits it
	Exempt                   // it is on the allow list
	Allowed
	Denied
	Queued   // it is to be kept for later, as Admission.Queue says
	Rejected // the rules do not accept it at all
)

// Admission is what became of one request. Whoever asked for it calls SetHeaders or WriteDenial if the caller is to be
// told, and then exactly once Serve or Done.
type Admission struct {
	Outcome      Outcome
	Rule         string        // that denied, queued or delayed it; of several the one that matters most
	RetryAfter   time.Duration // of a request that was denied
	ExceedsLimit bool          // it was denied and costs more than is ever allowed at once: no waiting helps
	Waited       time.Duration // for its turn
	Queue        *QueueTarget  // if it is Queued

	headers  *quota.Headers
	reported reported
	custom   customDenial
	pooled   recycler // what reported is in; nil: in memory of its own
	permit   *sluice.Permit
	charges  *statusCharges // of rules
	keyed    keyedCharge
}

// reported is what headers and bodies tell of the decisions.
type reported struct {
	policies  *quota.Policies // nil: there is nothing to tell
	rules     []*sluice.Rule
	decisions []sluice.Decision
	one       [1]sluice.Decision // instead of decisions, if there is only one
}

// recycler is memory that is used for one request after another.
type recycler interface{ recycle() }

func (t *reported) all() []sluice.Decision {
	if t.decisions == nil {
		return t.one[:]
	}
	return t.decisions
}

// recycle lets go of memory that others may use from now on.
func (a *Admission) recycle() {
	if a.pooled != nil {
		a.reported.policies, a.reported.rules, a.reported.decisions = nil, nil, nil
		a.pooled.recycle()
		a.pooled = nil
	}
}

// SetHeaders tells the caller of a request that was allowed, denied or queued what is left of its limits.
func (a *Admission) SetHeaders(h http.Header, r *http.Request) {
	if a.reported.policies == nil {
		return
	}
	a.headers.Set(h, r, a.reported.policies, a.reported.all(), a.Outcome == Denied)
	if a.Outcome == Allowed {
		quota.SetDelay(h, a.Waited)
	}
}

// Denial is what the caller of a denied request may be told. It is a copy.
func (a *Admission) Denial() *quota.Denial {
	d := quota.DenialOf(slices.Clone(a.reported.rules), slices.Clone(a.reported.all()))
	return &d
}

// WriteDenial answers a denied request, headers included.
func (a *Admission) WriteDenial(w http.ResponseWriter, r *http.Request) {
	a.SetHeaders(w.Header(), r)
	if a.custom.rule != nil {
		a.custom.write(w, r, &a.reported)
		return
	}
	WriteDenial(w, r, a.reported.rules, a.reported.policies, a.reported.all())
}

// Serve has a handler serve a request that may pass. When it has, what is held of limits on requests in flight is released,
// with a connection that the handler has taken over when that is closed; and what was charged is settled.
func (a *Admission) Serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	a.recycle() // before the handler runs, which may take long
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

// Done ends a request that was not served by Serve: it releases what is held and settles by the status.
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

// release gives back the permits of a request that is not served, or no longer.
func (a *Admission) release(ctx context.Context) {
	if a.permit != nil {
		a.permit.Release(ctx)
		a.permit = nil
	}
}

// keyedCharge is what was charged under the rules of a limiter, which do not say by themselves what they charge for.
type keyedCharge struct {
	refundable
	chargeIf func(status int) bool // nil: it stays charged
}

func (c *keyedCharge) settle(ctx context.Context, status int) {
	if !c.chargeIf(status) {
		c.refund(ctx)
	}
}

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

// mustQueueBehind reports whether a request that was allowed has to stand in line all the same.
func (c *Controller) mustQueueBehind(m *matchedRequest, try Try) bool {
	if !c.config.Queues || c.config.HasPending == nil || try.Retried { // or it is the first of the line
		return false
	}
	for i, rule := range m.matched.Rules {
		if m.keepsOrder(i) && c.config.HasPending(rule.Name, m.matched.Takes[i].Key) {
			return true
		}
	}
	return false
}

// denyOrQueue says what becomes of a request that finds no room: it is queued, or denied.
func (c *Controller) denyOrQueue(m *matchedRequest, try Try, a *Admission) {
	if try.Retried {
		for i := range m.decisions {
			if d := &m.decisions[i]; m.matched.Takes[i].Cost == 0 {
				d.Allowed, d.RetryAfter = true, 0 // it was not asked
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
