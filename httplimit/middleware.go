package httplimit

import (
	"net/http"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/rules"
)

// Middleware limits the requests to a handler by key, under all rules of the limiter. It panics if the limiter or the key
// is nil, the limiter has no rules, or options contradict each other.
//
// Under a [sluice.Concurrency] limit a request holds one permit, whatever its cost, until the handler is done. Under a
// [sluice.LeakyQueue] requests are delayed. See [RulesMiddleware] for both.
func Middleware(limiter *sluice.Limiter, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	switch {
	case limiter == nil:
		panic("httplimit: Middleware: nil limiter: check the error of sluice.New")
	case key == nil:
		panic("httplimit: Middleware: nil key: use ByIP() or another KeyFunc")
	case len(limiter.Rules()) == 0:
		panic("httplimit: Middleware: limiter without rules: use sluice.New, or RulesMiddleware with a rule set")
	}
	c := newConfig(opts)
	if c.limitFor != nil && len(limiter.Rules()) > 1 {
		panic("httplimit: Middleware: LimitFor requires a limiter with exactly one rule")
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
	h.respond(w, r, h.next, &a, err)
}

// respond calls the next handler for an allowed request and writes the response to all others.
func (c *config) respond(w http.ResponseWriter, r *http.Request, next http.Handler, a *admission.Admission, err error) {
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

// deny writes the response to a denied request.
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

// fail writes the response to a request for which no decision could be made.
func (c *config) fail(w http.ResponseWriter, r *http.Request, err error) {
	admission.WriteError(w, r, err, c.onError)
}

// RulesMiddleware limits the requests to a handler by a rule set. It matches each request against the set and decides all
// limits that apply together: either every limit is charged or none. The limiter must have no rules.
//
//	limiter, err := sluice.NewWithRules(memstore.New(), nil)
//	set, err := rules.New(rules.Config{…})
//	…
//	handler = httplimit.RulesMiddleware(limiter, func() *rules.Set { return set })(handler)
//
// The function set is called once per request and may return another set at any time. Usage belongs to the name of a rule:
// it is preserved when the set changes and starts from zero under a new name. If the function returns nil, the response is
// 500 Internal Server Error.
//
// Requests that match no rule, or the allow list, are served without limits and without quota headers. Requests that the
// set rejects ([rules.MatchRejected]) get 403 Forbidden. Requests that cannot be counted, see [rules.Set.Match], get 400
// Bad Request for an ambiguous attribute, an ambiguous path or an invalid cost, and 431 for an attribute that is too long;
// [ErrorHandler] replaces these responses. All other responses are those of [Middleware]. Clients see each limit under the
// name of its rule: "posts-per-user", and "posts-per-user#2" for its second limit.
//
// Delay: a [sluice.LeakyQueue], and a rule with on_limit: delay, delay requests by at most the rule's max_delay,
// [MaxDelay] and the deadline of the request's context. Requests of this process are released in order of arrival. The
// store decides when the next one is released, so that all instances together keep the limit. The response carries the
// delay in X-Ratelimit-Delay, in seconds. A request whose client disconnects leaves the delay queue. Requests of a leaky
// queue are released at least Window/Count apart, by the local clock.
//
// Queue: a rule with on_limit: queue denies requests over the limit, because only the gateway has a durable queue.
//
// Concurrency: a permit is held until the handler returns or panics or, if the handler hijacks the connection, until the
// connection is closed. A denial by a concurrency limit has a Retry-After of 1 second.
//
// Charges: a rule that charges by status refunds the request when the handler is done, see [ChargeIf] and
// [ChargeAnyStatus]. A rule with actual_cost reads the actual cost from the response.
//
// RulesMiddleware panics if the limiter or the function is nil, if the limiter has rules, or if it is given the options
// [Cost], [LimitFor] or [ChargeIf], which rules configure themselves.
func RulesMiddleware(limiter *sluice.Limiter, set func() *rules.Set, opts ...Option) func(http.Handler) http.Handler {
	c := newConfig(opts)
	switch {
	case limiter == nil:
		panic("httplimit: RulesMiddleware: nil limiter: check the error of sluice.NewWithRules")
	case set == nil:
		panic("httplimit: RulesMiddleware: nil set: pass a function that returns it, such as func() *rules.Set { return set }")
	case len(limiter.Rules()) > 0:
		panic("httplimit: RulesMiddleware: limiter has rules, which would not be applied: use sluice.NewWithRules(store, nil)")
	case c.cost != nil:
		panic("httplimit: RulesMiddleware: option Cost is not supported: " +
			"set Cost of rules.Rule, or cost in the rule file")
	case c.limitFor != nil:
		panic("httplimit: RulesMiddleware: option LimitFor is not supported: " +
			"set Tiers or Overrides of rules.Rule, or tiers or overrides in the rule file")
	case c.chargeIf != nil:
		panic("httplimit: RulesMiddleware: option ChargeIf is not supported: " +
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
			c.respond(w, r, next, &a, err)
		})
	}
}
