package httplimit

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// Middleware limits the requests that reach a handler, by key and under all of the limiter's rules. It panics if the
// limiter or the key is nil, the limiter has no rules, or options contradict each other.
//
// When a rule's limit is a [sluice.Concurrency], a request holds one slot, whatever it costs, until the handler is done with
// it: see [Rules]. When it is a [sluice.LeakyQueue], requests wait for their turn here. A client that leaves gives its
// place back.
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
	m.policies = newPolicies(m.rules)
	m.reserve = m.chargeIf != nil
	for _, rule := range m.rules {
		m.reserve = m.reserve || rule.Limit.Algorithm == sluice.LeakyQueue
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
	policies *policies
	reserve  bool      // requests may have to be given back
	flight   bool      // requests hold slots
	scratch  sync.Pool // of *scratch
}

type scratch struct {
	takes     []sluice.Take
	decisions []sluice.Decision
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
	if len(h.rules) == 1 && limit == nil && !h.flight {
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
	case h.reserve:
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
		s.takes[i] = sluice.Take{Rule: rule, Limit: limit, Key: key, Cost: cost}
		if s.takes[i].Effective().Algorithm == sluice.Concurrency {
			s.takes[i].Cost = min(cost, 1)
		}
	}
	allowed, err := h.limiter.Decide(r.Context(), s.takes, s.decisions)
	var (
		back held
		slot *sluice.Slot
	)
	next := h.next
	if err == nil && flies(s.takes) {
		slot = hold(h.limiter, s.takes, s.decisions)
		next = &slotted{next, slot}
	}
	if err == nil && allowed && h.mayGiveBack(limit) {
		back = holdTakes(h.limiter.Store(), s.takes, s.decisions)
	}
	// The scratch is let go before the handler runs, which may take long: decisions are copied, the key is forgotten.
	var room [4]sluice.Decision
	ds := append(room[:0], s.decisions...)
	clear(s.takes)
	h.scratch.Put(s)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	ps := h.policies
	if limit != nil {
		ps = newPolicies(h.rules, limit)
	}
	if !h.answer(w, r, next, ps, ds, allowed, back) {
		slot.Release(r.Context())
	}
}

func (h *handler) mayGiveBack(limit *sluice.Limit) bool {
	return h.reserve || limit != nil && limit.Algorithm == sluice.LeakyQueue
}

// answer denies the request, or has the next handler serve it when its turn comes. It tells whether it was served.
func (h *handler) answer(
	w http.ResponseWriter, r *http.Request, next http.Handler,
	ps *policies, ds []sluice.Decision, allowed bool, back held,
) bool {
	switch {
	case !h.admit(w, r, h.rules, ps, ds, allowed, &back):
		return false
	case h.chargeIf == nil:
		next.ServeHTTP(w, r)
	default:
		serveOutcome(next, w, r, func(status int) {
			if !h.chargeIf(status) {
				back.giveBack(r.Context())
			}
		})
	}
	return true
}

// admit answers the request if it is denied, and otherwise returns true when its turn has come and the headers are set.
// The decisions are those of the rules.
func (c *config) admit(
	w http.ResponseWriter, r *http.Request,
	rules []*sluice.Rule, ps *policies, ds []sluice.Decision, allowed bool, back *held,
) bool {
	delay := longestDelay(rules, ds)
	if allowed && delay > 0 {
		if most := c.patience(r.Context()); delay > most {
			back.giveBack(r.Context())
			refuse(rules, ds, most)
			allowed = false
		}
	}
	if !allowed {
		c.deny(w, r, rules, ps, ds)
		return false
	}
	if delay > 0 {
		if err := wait(r.Context(), delay); err != nil {
			back.giveBack(r.Context())
			c.fail(w, r, err)
			return false
		}
	}
	c.setHeaders(w.Header(), r, ps, ds, false)
	return true
}

// longestDelay is how long the request has to wait. A peek takes no place, and a shadow rule holds nobody up.
func longestDelay(rules []*sluice.Rule, ds []sluice.Decision) (delay time.Duration) {
	for i := range ds {
		if ds[i].Granted > 0 && !rules[i].Shadow {
			delay = max(delay, ds[i].Delay)
		}
	}
	return delay
}

// fail answers a request that was not decided.
func (c *config) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		// Mostly nobody is there to read this. But a deadline may have been put on a client that still waits, and
		// returning without a word would be a 200.
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

// callerFaults are errors that are the caller's. What the caller is told names no header and no rule: who tries to get
// around a limit should not be told how it counts.
var callerFaults = []struct {
	err    error
	status int
	detail string
}{
	{ErrRepeated, http.StatusBadRequest, "Something that requests are limited by is given more than once."},
	{
		rules.ErrAmbiguous, http.StatusBadRequest,
		"Something that requests are limited by is given more than once, or by a name that may be mistaken for another.",
	},
	{rules.ErrPath, http.StatusBadRequest, "The path is malformed, or can be read in more than one way."},
	{rules.ErrCost, http.StatusBadRequest, "What the request costs is not a whole number of at least 1."},
	{rules.ErrTooLong, http.StatusRequestHeaderFieldsTooLarge, "Something that requests are limited by is too long."},
}

// patience is the longest wait that makes sense.
func (c *config) patience(ctx context.Context) time.Duration {
	most := c.maxWait
	if most == 0 {
		most = 1<<63 - 1
	}
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, max(0, time.Until(deadline)))
	}
	return most
}

// refuse turns places in a queue that are too late into denials: they would do once the queue is so much shorter.
func refuse(rules []*sluice.Rule, ds []sluice.Decision, most time.Duration) {
	for i := range ds {
		if d := &ds[i]; d.Delay > most && !rules[i].Shadow {
			d.Allowed, d.Granted, d.RetryAfter, d.Delay = false, 0, d.Delay-most, 0
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
