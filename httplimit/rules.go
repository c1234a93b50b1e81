package httplimit

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/clientip"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// Rules limits the requests that reach a handler by a set of rules: each request is matched against the set, and all
// the limits that apply to it are decided together, all or nothing. The limiter has no rules of its own.
//
//	limiter, err := sluice.NewRules(memstore.New(), nil)
//	set, err := rules.New(rules.Config{…})
//	…
//	handler = httplimit.Rules(limiter, func() *rules.Set { return set })(handler)
//
// The function is asked for the set once per request and may return another one at any time. Counts belong to the
// names of rules, so they go on under a new set, and under a new name they begin anew. If it returns nil the request is
// answered with 500: what cannot be decided does not pass.
//
// Requests that no rule limits, and those on the allow list, are served as if there were no limits and without headers.
// What the rules refuse is 403 Forbidden. What cannot be counted is not served either, see [rules.Set.Match]: 400 Bad
// Request for an attribute that is given twice, an ambiguous path and a cost that is none, and 431 for an attribute
// that is too long; [OnError] may answer otherwise. All else is as with [Middleware], and callers know each limit by
// the name of its rule: "posts-per-user", and "posts-per-user#2" for its second limit.
//
// Requests wait for their turn where the limit is a [sluice.LeakyQueue] and where the rule says so (on_limit: delay),
// at most as long as the rule, [MaxWait] and their context's deadline allow. They wait in line, first come first served
// among the requests of this process; the store says when the first may leave, so that all processes together keep to
// the limit. A request that had to wait is told so in X-Ratelimit-Delay, in seconds. A client that leaves makes room for
// those behind it. Departures of a leaky queue are at least as far apart as its rate says, by the clock of this process.
// A rule that says on_limit: queue refuses what is over the limit, unless the option [Queue] says where requests are kept.
// What a rule limits in flight (concurrent) is held until the handler returns, or panics, and if it has taken over the
// connection until that is closed; who is denied by it is told to try again in a second.
// A rule that charges by status gives back, when the handler is done, what it should not have charged; see [ChargeIf]
// and [ChargeAnyStatus]. One that settles reads in the answer what the request has really cost.
//
// The options [Cost], [LimitFor] and [ChargeIf] are not for rules, which say all that themselves. It panics if it is
// given one of them, or a limiter or function that is nil, or a limiter with rules.
func Rules(limiter *sluice.Limiter, set func() *rules.Set, opts ...Option) func(http.Handler) http.Handler {
	m := &ruleMiddleware{config: newConfig(opts), limiter: limiter, set: set}
	switch {
	case limiter == nil:
		panic("httplimit: Rules: the limiter is nil: check the error of sluice.NewRules")
	case set == nil:
		panic("httplimit: Rules: the set is nil: pass a function that returns it, such as func() *rules.Set { return set }")
	case len(limiter.Rules()) > 0:
		panic("httplimit: Rules: the limiter has rules of its own, which would not be applied: " +
			"use sluice.NewRules(store, nil)")
	case m.cost != nil:
		panic("httplimit: Rules: Cost: a rule says itself what a request costs: " +
			"set Cost of rules.Rule, or cost in the rule file")
	case m.limitFor != nil:
		panic("httplimit: Rules: LimitFor: a rule says itself whose limit is another: " +
			"set Tiers or Overrides of rules.Rule, or tiers or overrides in the rule file")
	case m.chargeIf != nil:
		panic("httplimit: Rules: ChargeIf: a rule says itself which outcomes it charges: " +
			"set ChargeStatus of rules.Rule, or charge in the rule file")
	}
	return func(next http.Handler) http.Handler { return &ruleHandler{m, next} }
}

type ruleMiddleware struct {
	config
	limiter *sluice.Limiter
	set     func() *rules.Set
	current atomic.Pointer[ruleSet]
	lines   lines
}

// ruleSet is what is made once for a set of rules, and goes away with it.
type ruleSet struct {
	set      *rules.Set
	ip       *clientip.Finder
	policies quota.Cache
	matches  sync.Pool // of *match
}

// match is a request beside its rules, and what was decided. Matches are reused: the keys of takes are in a buffer of
// Matched, and nothing of a match may be used after it was let go.
type match struct {
	of        *ruleSet
	request   ruleRequest
	matched   rules.Matched
	decisions []sluice.Decision
	quota.List
	passage passage
	settled func(i int) bool // mayGiveBack
}

type ruleHandler struct {
	*ruleMiddleware
	next http.Handler
}

var errNoSet = fmt.Errorf("%w: httplimit: Rules: the function returned no set", sluice.ErrInvalid)

func (h *ruleHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.skip != nil && h.skip(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	set := h.set()
	if set == nil {
		h.fail(w, r, errNoSet)
		return
	}
	m := h.setFor(set).matches.Get().(*match)
	m.request.http = r
	if h.queue != nil {
		m.matched.Queued, _ = r.Context().Value(queuedKey{}).(*rules.Queued)
	}
	err := set.Match(&m.request, &m.matched)
	if len(m.matched.Shadowed) > 0 {
		h.limiter.ReportShadowed(r.Context(), m.matched.Shadowed)
	}
	switch {
	case err != nil:
		m.letGo()
		h.fail(w, r, err)
	case m.matched.Verdict == rules.Refused:
		m.letGo()
		fail(w, r, http.StatusForbidden, "The server does not accept this request.")
	case len(m.matched.Takes) == 0: // no rule matches, it is exempt, or its key has no limit
		m.letGo()
		h.next.ServeHTTP(w, r)
	default:
		h.limit(w, r, m)
	}
}

// setFor returns what was made for the set. While one set replaces another a few requests still come with the old one,
// for which it is then made anew; that is little work.
func (m *ruleMiddleware) setFor(set *rules.Set) *ruleSet {
	old := m.current.Load()
	if old != nil && old.set == set {
		return old
	}
	s := &ruleSet{set: set, ip: clientIP(set)}
	flight := !m.anyStatus
	s.matches.New = func() any {
		m := &match{of: s, request: ruleRequest{ip: s.ip}, matched: rules.Matched{Flight: flight}}
		m.settled = m.mayGiveBack
		return m
	}
	m.current.CompareAndSwap(old, s)
	return s
}

// limit decides the takes of a request that rules limit.
func (h *ruleHandler) limit(w http.ResponseWriter, r *http.Request, m *match) {
	ps := m.prepare(!h.anyStatus)
	again := isQueued(r)
	if again {
		m.chargeOnce(&h.lines)
	}
	delayed := delaysAny(h.limiter, m.matched.Takes)
	var (
		allowed bool
		err     error
	)
	switch {
	case delayed:
		f := flightOf(w)
		f.wait()
		allowed, err = h.line(r, m).through()
		f.resume()
	case again: // it was reported as denied when it was queued
		if allowed, err = h.limiter.Attempt(r.Context(), m.matched.Takes, m.decisions); allowed && err == nil {
			h.limiter.Report(r.Context(), m.matched.Takes, m.decisions)
		}
	default:
		allowed, err = h.limiter.Decide(r.Context(), m.matched.Takes, m.decisions)
	}
	if err != nil {
		m.letGo()
		h.fail(w, r, err)
		return
	}
	next := h.next
	var slot *sluice.Slot
	if flies(m.matched.Takes) {
		slot = hold(h.limiter, m.matched.Takes, m.decisions)
		next = &slotted{next, slot}
	}
	if allowed && !delayed && h.overtakes(r, m) {
		for i := range m.decisions {
			if m.chargedOnArrival(i) {
				m.decisions[i].Granted = 0 // it stays charged
			}
		}
		back := holdTakes(h.limiter, m.matched.Takes, m.decisions)
		back.giveBack(r.Context())
		allowed = false
	}
	if !allowed {
		slot.Release(r.Context())
		h.turnAway(w, r, m, ps)
		return
	}
	h.headers.Set(w.Header(), r, ps, m.decisions, false)
	var charged *charges
	if !h.anyStatus {
		charged = m.charges(h.limiter, h.set)
	}
	if delayed {
		quota.SetDelay(w.Header(), m.passage.waited)
		if m.passage.waited > 0 {
			h.observed(r, Observed{Rule: m.passage.last.rule.Name, Delay: m.passage.waited})
		}
		m.passage.depart()
	}
	m.letGo() // before the handler runs, which may take long
	if charged == nil {
		next.ServeHTTP(w, r)
		return
	}
	serveOutcome(next, w, r, charged.look, func(status int) { charged.settle(r, status) })
}

// line is the request's way through the lines of rules that delay it.
func (h *ruleHandler) line(r *http.Request, m *match) *passage {
	p := &m.passage
	p.config, p.limiter, p.lines, p.request = &h.config, h.limiter, &h.lines, r
	p.takes, p.out, p.settled = m.matched.Takes, m.decisions, m.settled
	return p
}

// mayGiveBack tells whether a take may be given back when the request is done.
func (m *match) mayGiveBack(i int) bool {
	rule := m.matched.Rules[i]
	return len(rule.ChargeStatus) > 0 || rule.Settle != nil
}

// prepare makes room for the decisions and lists the policies that the takes are about. It marks the takes that are
// settled when the request is done, if any are.
func (m *match) prepare(settles bool) *quota.Policies {
	takes := m.matched.Takes
	for i := range takes {
		takes[i].Settles = settles && m.mayGiveBack(i) && takes[i].Effective().Algorithm != sluice.Concurrency
	}
	if cap(m.decisions) < len(takes) {
		m.decisions = make([]sluice.Decision, len(takes))
	}
	m.decisions = m.decisions[:len(takes)]
	return m.List.Of(&m.of.policies, takes)
}

// letGo returns the match for another request to use.
func (m *match) letGo() {
	m.matched.Forget()
	m.request.http, m.passage.request = nil, nil
	m.of.matches.Put(m)
}
