package httplimit

import (
	"net/http"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/rules"
)

// Middleware limits the requests that reach a handler, by key and under all of the limiter's rules. It panics if the
// limiter or the key is nil, the limiter has no rules, or options contradict each other.
//
// When a rule's limit is a [sluice.Concurrency], a request holds one slot, whatever it costs, until the handler is done with
// it. When it is a [sluice.LeakyQueue], requests wait in line for their turn here. See [RulesMiddleware] for both.
func Middleware(limiter *sluice.Limiter, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	switch {
	case limiter == nil:
		panic("httplimit: Middleware: the limiter is nil: check the error of sluice.New")
	case key == nil:
		panic("httplimit: Middleware: the key is nil: use ByIP() or another KeyFunc")
	case len(limiter.Rules()) == 0:
		panic("httplimit: Middleware: the limiter has no rules, so nothing would be limited")
	}
	c := newConfig(opts)
	if c.limitFor != nil && len(limiter.Rules()) > 1 {
		panic("httplimit: LimitFor needs a limiter with one rule: it would not be clear which rule's limit is meant")
	}
	control := admission.NewKeyed(limiter, c.admission())
	return func(next http.Handler) http.Handler { return &handler{c, control, key, next} }
}

type handler struct {
	*config
	control *admission.Keyed
	key     KeyFunc
	next    http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.cors != nil && h.setCORS(w, r) {
		return
	}
	if h.skip != nil && h.skip(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	key, err := h.key(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	cost := int64(1)
	if h.cost != nil {
		cost = h.cost(r)
	}
	var limit *sluice.Limit
	if h.limitFor != nil {
		limit = h.limitFor(r)
	}
	a, err := h.control.Admit(w, r, key, cost, limit)
	h.answer(w, r, h.next, &a, err)
}

// answer has the next handler serve a request that may pass, and answers all others.
func (c *config) answer(w http.ResponseWriter, r *http.Request, next http.Handler, a *admission.Admission, err error) {
	switch {
	case err != nil:
		c.fail(w, r, err)
	case a.Outcome == admission.Rejected:
		admission.WriteRejection(w, r)
	case a.Outcome == admission.Denied:
		c.deny(w, r, a)
	default:
		a.SetHeaders(w.Header(), r)
		a.Serve(next, w, r)
	}
}

// deny answers a denied request.
func (c *config) deny(w http.ResponseWriter, r *http.Request, a *admission.Admission) {
	if c.onDenied == nil {
		a.WriteDenial(w, r)
		a.Done(r.Context(), http.StatusTooManyRequests)
		return
	}
	a.SetHeaders(w.Header(), r)
	denial := a.Denial()
	a.Done(r.Context(), http.StatusTooManyRequests)
	c.onDenied(w, r, (*Denial)(denial))
}

// fail answers a request that was not decided.
func (c *config) fail(w http.ResponseWriter, r *http.Request, err error) {
	admission.WriteError(w, r, err, c.onError)
}

// RulesMiddleware limits the requests that reach a handler by a set of rules: each request is matched against the set, and all
// the limits that apply to it are decided together, all or nothing. The limiter has no rules of its own.
//
//	limiter, err := sluice.NewWithRules(memstore.New(), nil)
//	set, err := rules.New(rules.Config{…})
//	…
//	handler = httplimit.RulesMiddleware(limiter, func() *rules.Set { return set })(handler)
//
// The function is asked for the set once per request and may return another one at any time. Counts belong to the
// names of rules, so they go on under a new set, and under a new name they begin anew. If it returns nil the request is
// answered with 500: what cannot be decided does not pass.
//
// Requests that no rule limits, and those on the allow list, are served as if there were no limits and without headers.
// What the rules refuse is 403 Forbidden. What cannot be counted is not served either, see [rules.Set.Match]: 400 Bad
// Request for an attribute that is given twice, an ambiguous path and a cost that is none, and 431 for an attribute
// that is too long; [ErrorHandler] may answer otherwise. All else is as with [Middleware], and callers know each limit by
// the name of its rule: "posts-per-user", and "posts-per-user#2" for its second limit.
//
// Requests wait for their turn where the limit is a [sluice.LeakyQueue] and where the rule says so (on_limit: delay),
// at most as long as the rule, [MaxDelay] and their context's deadline allow. They wait in line, first come first served
// among the requests of this process; the store says when the first may leave, so that all processes together keep to
// the limit. A request that had to wait is told so in X-Ratelimit-Delay, in seconds. A client that leaves makes room for
// those behind it. Departures of a leaky queue are at least as far apart as its rate says, by the clock of this process.
// A rule that says on_limit: queue denies what is over the limit: queues are the gateway's.
// What a rule limits in flight (concurrent) is held until the handler returns, or panics, and if it has taken over the
// connection until that is closed; who is denied by it is told to try again in a second.
// A rule that charges by status gives back, when the handler is done, what it should not have charged; see [ChargeIf]
// and [ChargeAnyStatus]. One that settles reads in the answer what the request has really cost.
//
// The options [Cost], [LimitFor] and [ChargeIf] are not for rules, which say all that themselves. It panics if it is
// given one of them, or a limiter or function that is nil, or a limiter with rules.
func RulesMiddleware(limiter *sluice.Limiter, set func() *rules.Set, opts ...Option) func(http.Handler) http.Handler {
	c := newConfig(opts)
	switch {
	case limiter == nil:
		panic("httplimit: RulesMiddleware: the limiter is nil: check the error of sluice.NewWithRules")
	case set == nil:
		panic("httplimit: RulesMiddleware: the set is nil: pass a function that returns it, such as func() *rules.Set { return set }")
	case len(limiter.Rules()) > 0:
		panic("httplimit: RulesMiddleware: the limiter has rules of its own, which would not be applied: " +
			"use sluice.NewWithRules(store, nil)")
	case c.cost != nil:
		panic("httplimit: RulesMiddleware: Cost: a rule says itself what a request costs: " +
			"set Cost of rules.Rule, or cost in the rule file")
	case c.limitFor != nil:
		panic("httplimit: RulesMiddleware: LimitFor: a rule says itself whose limit is another: " +
			"set Tiers or Overrides of rules.Rule, or tiers or overrides in the rule file")
	case c.chargeIf != nil:
		panic("httplimit: RulesMiddleware: ChargeIf: a rule says itself which outcomes it charges: " +
			"set ChargeStatus of rules.Rule, or charge in the rule file")
	}
	control := admission.New(limiter, set, c.admission())
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.cors != nil && c.setCORS(w, r) {
				return
			}
			if c.skip != nil && c.skip(r) {
				next.ServeHTTP(w, r)
				return
			}
			a, err := control.Admit(w, r, nil, admission.Try{})
			c.answer(w, r, next, &a, err)
		})
	}
}
