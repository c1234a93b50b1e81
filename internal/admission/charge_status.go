package admission

import (
	"context"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// statusCharges holds the takes of rules that charge by the response: by its status or by the actual cost in it.
type statusCharges struct {
	refundable                   // takes[i] refunds the whole charge
	set        func() *rules.Set // the current set, which may have changed by the time of the response
	rules      []*rules.Rule
	reader     *costReader
	reads      []int // index in reader.sources of takes[i]; -1: the rule has no actual_cost
}

// settle settles the charges with the actual costs.
func (c *statusCharges) settle(ctx context.Context, status int) {
	due, set := c.takes[:0], c.set()
	for i, t := range c.takes {
		t.Cost = c.cost(i, status, t.Charged) - t.Charged
		if t.Cost != 0 {
			due = append(due, current(set, t))
		}
	}
	c.takes = due
	c.refund(ctx)
}

// cost returns the actual cost of take i.
func (c *statusCharges) cost(i, status int, estimate int64) int64 {
	rule := c.rules[i]
	if len(rule.ChargeStatus) > 0 && !rule.ChargeStatus.Contains(status) {
		return 0
	}
	if c.reads[i] < 0 {
		return estimate
	}
	switch read := &c.reader.sources[c.reads[i]]; {
	case read.found:
		return read.amount
	case rule.ActualCost.Default != nil:
		return *rule.ActualCost.Default
	}
	return estimate
}

// current returns the take with the limit that its rule has in the current set. Settling under the old limit would convert
// the state of the key, which would then expire by the old limit until the next request. A take of a rule that the set does
// not have is returned unchanged.
func current(set *rules.Set, t sluice.Take) sluice.Take {
	if set == nil {
		return t
	}
	rule, limits := set.LookupLimits(t.Rule.Name, t.Key)
	if rule == nil || rule == t.Rule {
		return t
	}
	was := t.EffectiveLimit()
	var found *sluice.Limit
	for _, l := range limits {
		if l.Algorithm == was.Algorithm && (found == nil || l.String() == was.String()) { // the first one if the numbers have changed
			found = l
		}
	}
	if found != nil {
		t.Rule, t.Limit = rule, found
	}
	return t
}
