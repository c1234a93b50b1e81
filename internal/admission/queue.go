package admission

import (
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// QueueTarget says how a request that is over a limit is kept for later.
type QueueTarget struct {
	Rule       string             // the rule that keeps it
	Key        string             // whom it counts for under that rule
	Options    rules.QueueOptions // of that rule, with the defaults written out
	RetryAfter time.Duration      // when there may be room for it
	Charges    []rules.Charge     // of all rules that apply to it, for Try.Stored
}

// mustQueueBehind tells whether a request that was allowed has to stand in line all the same.
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

// keepsOrder reports whether a take's rule queues requests and keeps the order of its keys.
func (m *matchedRequest) keepsOrder(i int) bool {
	rule := m.matched.Rules[i]
	return rule.OnLimit == rules.OnLimitQueue && rule.Queue.Ordered && !m.List.Rules[i].Shadow
}

// chargedOnArrival reports whether a queued request is charged by a take's rule when it comes, and not when it is
// delivered: the rule had room for it then, and charges denied requests too.
func (m *matchedRequest) chargedOnArrival(i int) bool {
	return m.matched.Takes[i].Rule.ChargeDenied && m.matched.Rules[i].OnLimit != rules.OnLimitQueue
}

// chargeOnce changes the takes of a queued request that is tried again. Rules that charged it when it came are only looked
// at, and one that queues it charges its delivery but no attempt that finds no room.
func (m *matchedRequest) chargeOnce(l *delayQueues) {
	for i := range m.matched.Takes {
		switch t := &m.matched.Takes[i]; {
		case m.chargedOnArrival(i):
			t.Cost = 0
		case t.Rule.ChargeDenied:
			l.withoutCharge(t)
		}
	}
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
			a.Outcome, a.Rule, a.Queue, a.reported.policies = Queued, t.Rule, t, nil
			return
		}
	}
	tightest := sluice.MostRestrictive(m.decisions)
	d := &m.decisions[tightest]
	a.Outcome, a.Rule, a.RetryAfter, a.ExceedsLimit = Denied, m.List.Rules[tightest].Name, d.RetryAfter, d.ExceedsLimit
}

// queueTarget says how a denied request is kept; nil if it is not.
func (m *matchedRequest) queueTarget() *QueueTarget {
	by := -1
	for i := range m.decisions {
		rule, d := m.matched.Rules[i], &m.decisions[i]
		if !d.Allowed && (rule.OnLimit != rules.OnLimitQueue || d.ExceedsLimit || d.Source == sluice.SourceFailClosed) {
			return nil
		}
		switch {
		case m.keepsOrder(i) && (by < 0 || !m.matched.Rules[by].Queue.Ordered):
			by = i
		case !d.Allowed && by < 0:
			by = i
		}
	}
	if by < 0 {
		return nil
	}
	rule := m.matched.Rules[by]
	return &QueueTarget{
		Rule: rule.Name, Key: strings.Clone(m.matched.Takes[by].Key), Options: rule.Queue.WithDefaults(),
		RetryAfter: m.decisions[sluice.MostRestrictive(m.decisions)].RetryAfter, Charges: m.matched.Charges(),
	}
}
