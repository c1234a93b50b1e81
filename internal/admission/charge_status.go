package admission

import (
	"context"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// statusCharges are the takes of rules that charge by the answer: by its status, or by what it says that it has cost.
type statusCharges struct {
	refundable                   // takes[i] gives back all of it
	set        func() *rules.Set // the live one, which may be another by the time of the answer
	rules      []*rules.Rule
	reader     *costReader // reads[i] of it is of takes[i]
	reads      []int       // -1: the rule does not settle
}

// settle changes what was charged to what the answer costs.
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

// cost is what a take of the request costs now that its answer is known.
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

// current is the take under the limit that its rule has in the set: under another the key's state would be converted, and wear
// off as that says until the next request. A take of a rule that the set does not have stays as it is.
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
		if l.Algorithm == was.Algorithm && (found == nil || l.String() == was.String()) { // the first if the numbers have changed
			found = l
		}
	}
	if found != nil {
		t.Rule, t.Limit = rule, found
	}
	return t
}
