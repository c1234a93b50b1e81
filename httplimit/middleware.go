package httplimit

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/problem"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// Middleware limits the requests that reach a handler, by key and under all of the limiter's rules. It panics if the
// limiter or the key is nil, the limiter has no rules, or options contradict each other.
//
// When a rule's limit is a [sluice.Concurrency], a request holds one slot, whatever it costs, until the handler is done with
// it. When it is a [sluice.LeakyQueue], requests wait in line for their turn here. See [Rules] for both.
func Middleware(limiter *sluice.Limiter, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	switch {
	case limiter == nil:
		panic("httplimit: Middleware: the limiter is nil: check the error of sluice.New")
	case key == nil:
		panic("httplimit: Middleware: the key is nil: use ByIP() or another KeyFunc")
	case len(limiter.Rules()) == 0:
		panic("httplimit: Middleware: the limiter has no rules, so nothing would be limited")
	}
	m := &middleware{config: newConfig(opts), limiter: limiter, key: key, rules: limiter.Rules()}
	if m.queue != nil {
		panic("httplimit: Middleware: Queue: a rule of Rules says which requests are kept: use Rules")
	}
	if m.limitFor != nil && len(m.rules) > 1 {
		panic("httplimit: LimitFor needs a limiter with one rule: it would not be clear which rule's limit is meant")
	}
	m.policies = quota.NewPolicies(m.rules)
	for _, rule := range m.rules {
		m.queues = m.queues || rule.Limit.Algorithm == sluice.LeakyQueue
		m.flight = m.flight || rule.Limit.Algorithm == sluice.Concurrency
	}
	m.scratch.New = func() any {
		return &scratch{takes: make([]sluice.Take, len(m.rules)), decisions: make([]sluice.Decision, len(m.rules))}
	}
	return func(next http.Handler) http.Handler { return &handler{m, next} }
}

type middleware struct {
	config
	limiter  *sluice.Limiter
	key      KeyFunc
	rules    []*sluice.Rule
	policies *quota.Policies
	queues   bool // requests may have to wait
	flight   bool // requests hold slots
	lines    lines
	scratch  sync.Pool // of *scratch
}

type scratch struct {
	takes     []sluice.Take
	decisions []sluice.Decision
	passage   passage
}

type handler struct {
	*middleware
	next http.Handler
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
	if limit == nil { // the headers tell of it, so it must be known here
		limit = h.limiter.LimitFor(r.Context(), key)
	}
	if len(h.rules) == 1 && limit == nil && !h.flight && (!h.queues || cost == 0) {
		h.serveOne(w, r, key, cost)
	} else {
		h.serveSeveral(w, r, key, cost, limit)
	}
}

// serveOne asks the limiter by its front door, which costs no allocation.
func (h *handler) serveOne(w http.ResponseWriter, r *http.Request, key string, cost int64) {
	var (
		ds   [1]sluice.Decision
		back held
		err  error
	)
	switch {
	case cost == 0:
		ds[0], err = h.limiter.Peek(r.Context(), key)
	case h.chargeIf != nil:
		var res *sluice.Reservation
		if res, err = h.limiter.Reserve(r.Context(), key, cost); err == nil {
			ds[0], back.reservation = res.Decision, res
		}
	default:
		ds[0], err = h.limiter.AllowN(r.Context(), key, cost)
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.answer(w, r, h.next, h.policies, ds[:], cost == 0 || ds[0].Allowed, back)
}

// serveSeveral applies all rules at once.
func (h *handler) serveSeveral(w http.ResponseWriter, r *http.Request, key string, cost int64, limit *sluice.Limit) {
	s := h.scratch.Get().(*scratch)
	for i, rule := range h.rules {
		s.takes[i] = sluice.Take{Rule: rule, Limit: limit, Key: key, Cost: cost, Settles: h.chargeIf != nil}
		if s.takes[i].Effective().Algorithm == sluice.Concurrency {
			s.takes[i].Cost, s.takes[i].Settles = min(cost, 1), false
		}
	}
	delayed := delaysAny(h.limiter, s.takes)
	var f *flight
	if delayed {
		f = flightOf(w)
	}
	f.wait()
	allowed, err := h.decide(r, s, delayed)
	f.resume()
	if err != nil {
		h.letGo(s)
		h.fail(w, r, err)
		return
	}
	var (
		back held
		slot *sluice.Slot
	)
	next := h.next
	if flies(s.takes) {
		slot = hold(h.limiter, s.takes, s.decisions)
		next = &slotted{next, slot}
	}
	if allowed && h.chargeIf != nil {
		back = holdTakes(h.limiter, s.takes, s.decisions)
	}
	ps := h.policies
	if limit != nil {
		ps = quota.NewPolicies(h.rules, limit)
	}
	// The scratch is let go before anything is answered, which may take long: decisions are copied, the key is forgotten.
	var room [4]sluice.Decision
	ds := append(room[:0], s.decisions...)
	if allowed && delayed {
		quota.SetDelay(w.Header(), s.passage.waited)
		s.passage.depart()
	}
	h.letGo(s)
	if !allowed {
		slot.Release(r.Context())
	}
	h.answer(w, r, next, ps, ds, allowed, back)
}

// decide has the limiter decide, and the request wait if it has to.
func (h *handler) decide(r *http.Request, s *scratch, delayed bool) (bool, error) {
	if !delayed {
		return h.limiter.Decide(r.Context(), s.takes, s.decisions)
	}
	p := &s.passage
	p.config, p.limiter, p.lines, p.request = &h.config, h.limiter, &h.lines, r
	p.takes, p.out, p.settled = s.takes, s.decisions, nil
	if h.chargeIf != nil {
		p.settled = always
	}
	return p.through()
}

func always(int) bool { return true }

func (h *handler) letGo(s *scratch) {
	clear(s.takes)
	s.passage.request = nil
	h.scratch.Put(s)
}

// answer denies the request, or has the next handler serve it.
func (h *handler) answer(
	w http.ResponseWriter, r *http.Request, next http.Handler,
	ps *quota.Policies, ds []sluice.Decision, allowed bool, back held,
) {
	if !allowed {
		h.deny(w, r, h.rules, ps, ds)
		return
	}
	h.headers.Set(w.Header(), r, ps, ds, false)
	if h.chargeIf == nil {
		next.ServeHTTP(w, r)
		return
	}
	serveOutcome(next, w, r, nil, func(status int) {
		if !h.chargeIf(status) {
			back.giveBack(r.Context())
		}
	})
}

// fail answers a request that was not decided.
func (c *config) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch ctx := r.Context(); {
	case clientLeft(ctx): // which is no outage
		w.WriteHeader(statusClientLeft)
		return
	case ctx.Err() != nil:
		// A deadline may have been put on a client that still waits, and returning without a word would be a 200.
		fail(w, r, http.StatusServiceUnavailable, "")
		return
	}
	if c.onError != nil {
		c.onError(w, r, err)
		return
	}
	for i := range callerFaults {
		if f := &callerFaults[i]; errors.Is(err, f.err) {
			fail(w, r, f.status, f.detail)
			return
		}
	}
	fail(w, r, http.StatusInternalServerError, "")
}

// fail answers with a status, and with a few words if there is something that the caller may know.
func fail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	p := problem.New(status, detail)
	p.Instance = problem.Instance(r)
	p.Write(w)
}

// clientLeft reports whether the request was cancelled, as net/http does when a client leaves, and has not run out of time.
func clientLeft(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// callerFaults are errors that are the caller's. What the caller is told names no header and no rule: who tries to get
// around a limit should not be told how it counts.
var callerFaults = []struct {
	err    error
	status int
	detail string
}{
	{ErrRepeated, http.StatusBadRequest, "Something that requests are limited by is given more than once, or may be read differently."},
	{
		rules.ErrAmbiguous, http.StatusBadRequest,
		"Something that requests are limited by is given more than once, or may be read differently.",
	},
	{rules.ErrPath, http.StatusBadRequest, "The path is malformed, or can be read in more than one way."},
	{rules.ErrCost, http.StatusBadRequest, "What the request costs is not a whole number of at least 1."},
	{rules.ErrTooLong, http.StatusRequestHeaderFieldsTooLarge, "Something that requests are limited by is too long."},
}
