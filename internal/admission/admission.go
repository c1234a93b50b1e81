// Package admission takes one HTTP request from the rules that match it to what it has cost in the end. It decides what
// becomes of the request, has it wait for its turn where a rule says so, holds what is limited while it is served, and
// settles with the limiter when it is done. Edges ask it and write the answer themselves.
package admission

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/quota"
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
	// HasPending tells whether queued requests of a rule that keeps the order of its keys wait: while they do, another
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

// SetHeaders tells the caller of a request that was allowed or denied what is left of its limits.
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
	a.permit.Release(ctx)
	switch {
	case a.charges != nil:
		a.charges.settle(ctx, status)
	case a.keyed.chargeIf != nil:
		a.keyed.settle(ctx, status)
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
