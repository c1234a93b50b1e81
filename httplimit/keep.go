package httplimit

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// Kept is a request that is over a limit and to be kept for later.
type Kept struct {
	Rule       string             // the rule that keeps it
	Key        string             // whom it counts for under that rule
	Options    rules.QueueOptions // of that rule, with the defaults written out
	RetryAfter time.Duration      // when there may be room for it
	Charges    []rules.Charge     // of all rules that apply to it, for [WithQueued]
}

// Queue has [Rules] keep requests for later: f is called instead of denying a request when every rule that denies it says
// on_limit: queue, and has to answer it. No header is set. If another rule denies it too, or its cost can never fit, or
// nobody could count, it is denied as ever. Without the option all of them are.
//
// Where several such rules apply the request is kept by the first that keeps the order of its keys, whether or not that
// one denies it, so that what is in order stays in one line; and otherwise by the first that denies it.
//
// Who does a kept request later sends it to the same handler with a context of [WithoutQueue], and of [WithQueued] if it
// lacks headers by then.
func Queue(f func(w http.ResponseWriter, r *http.Request, k *Kept)) Option {
	return func(c *config) { c.queue = f }
}

// InLine has [Rules] keep a request under a rule that keeps the order of its keys although there is room for it, as long
// as others of its key wait: it would overtake them. Waiting tells whether some do. The option is for [Queue].
func InLine(waiting func(rule, key string) bool) Option {
	return func(c *config) { c.waiting = waiting }
}

// overtakes tells whether a request that was allowed has to stand in line all the same.
func (h *ruleHandler) overtakes(r *http.Request, m *match) bool {
	if h.queue == nil || h.waiting == nil {
		return false
	}
	for i, rule := range m.matched.Rules {
		if rule.OnLimit == rules.Queue && rule.Queue.Ordered && !m.Rules[i].Shadow && h.waiting(rule.Name, m.matched.Takes[i].Key) {
			return !isQueued(r) // or it is the first of the line
		}
	}
	return false
}

type deniedKey struct{}

// WithoutQueue marks a request that was kept and is tried again. If it is denied, [Rules] neither keeps it once more nor
// answers it, but calls denied and returns.
func WithoutQueue(ctx context.Context, denied func(*Denial)) context.Context {
	return context.WithValue(ctx, deniedKey{}, denied)
}

// isQueued reports whether the request was queued and is tried again.
func isQueued(r *http.Request) bool { return r.Context().Value(deniedKey{}) != nil }

// chargedOnArrival reports whether a queued request is charged by a take's rule when it comes, and not when it is
// delivered: the rule had room for it then, and charges denied requests too.
func (m *match) chargedOnArrival(i int) bool {
	return m.matched.Takes[i].Rule.ChargeDenied && m.matched.Rules[i].OnLimit != rules.Queue
}

// chargeOnce changes the takes of a queued request that is tried again. Rules that charged it when it came are only looked
// at, and one that queues it charges its delivery but no attempt that finds no room.
func (m *match) chargeOnce(l *lines) {
	for i := range m.matched.Takes {
		switch t := &m.matched.Takes[i]; {
		case m.chargedOnArrival(i):
			t.Cost = 0
		case t.Rule.ChargeDenied:
			l.wait(t)
		}
	}
}

type queuedKey struct{}

// WithQueued tells [Rules] of a queued request which of its headers were not stored, and what it would have been charged
// with them. Without it rules that read such a header take the request for another.
func WithQueued(ctx context.Context, q *rules.Queued) context.Context {
	return context.WithValue(ctx, queuedKey{}, q)
}

// turnAway deals with a denied request: whoever tries it again is told, or it is kept, or denied.
func (h *ruleHandler) turnAway(w http.ResponseWriter, r *http.Request, m *match, ps *quota.Policies) {
	if denied, ok := r.Context().Value(deniedKey{}).(func(*Denial)); ok {
		for i := range m.decisions {
			if d := &m.decisions[i]; m.matched.Takes[i].Cost == 0 {
				d.Allowed, d.RetryAfter = true, 0 // it was not asked
			}
		}
		d := quota.DenialOf(slices.Clone(m.Rules), slices.Clone(m.decisions))
		m.letGo()
		h.observed(r, Observed{Denied: true, Rule: d.Rules[d.Tightest].Name})
		denied((*Denial)(&d))
		return
	}
	if h.queue != nil {
		if k := m.kept(); k != nil {
			m.letGo()
			h.observed(r, Observed{Kept: true, Rule: k.Rule})
			h.queue(w, r, k)
			return
		}
	}
	h.observed(r, Observed{Denied: true, Rule: m.matched.Takes[sluice.Tightest(m.decisions)].Rule.Name})
	h.deny(w, r, m.Rules, ps, m.decisions)
	m.letGo()
}

// kept says how a denied request is kept; nil if it is not.
func (m *match) kept() *Kept {
	by := -1
	for i := range m.decisions {
		rule, d := m.matched.Rules[i], &m.decisions[i]
		if !d.Allowed && (rule.OnLimit != rules.Queue || d.Never || d.Source == sluice.SourceClosed) {
			return nil
		}
		ordered := rule.OnLimit == rules.Queue && rule.Queue.Ordered && !m.Rules[i].Shadow
		switch {
		case ordered && (by < 0 || !m.matched.Rules[by].Queue.Ordered):
			by = i
		case !d.Allowed && by < 0:
			by = i
		}
	}
	if by < 0 {
		return nil
	}
	rule := m.matched.Rules[by]
	return &Kept{
		Rule: rule.Name, Key: strings.Clone(m.matched.Takes[by].Key), Options: rule.Queue.WithDefaults(),
		RetryAfter: m.decisions[sluice.Tightest(m.decisions)].RetryAfter, Charges: m.matched.Charges(),
	}
}
