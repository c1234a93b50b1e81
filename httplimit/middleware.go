package httplimit

import (
	"net/http"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/admission"
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
