package metrics

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// outcome is how a decision ended for the caller.
type outcome uint8

const (
	allowed outcome = iota
	denied
	shadowDenied
	outcomes
)

// sources is how many sources of decisions there are.
const sources = int(sluice.SourceSuspended) + 1

// counters count the decisions of one rule. They outlive the rule when another of its name takes its place.
type counters struct {
	decisions [sources][outcomes]atomic.Int64
	near      atomic.Int64
	forgiven  atomic.Int64
	peak      [2]atomic.Int64 // thousandths of its limit that a key has used, at most, in this period and the one before
}

// ruleTable finds the counters of a rule. It is immutable but for the counters.
type ruleTable struct {
	set    *rules.Set
	byRule map[*sluice.Rule]*counters
	byName map[string]*counters
	rules  []*sluice.Rule // in the order of the configuration, no name twice
	keyed  []*sluice.Rule // no name of rules
	other  *counters
}

// of returns the counters of a rule.
func (m *Metrics) of(r *sluice.Rule) *counters {
	if c := m.live.Load().byRule[r]; c != nil {
		return c
	}
	return m.ofName(r.Name)
}

// ofName finds the counters of a rule that is a copy of one in the set, as those that only report are, or of a set that has
// just been replaced, or of one that nobody here has heard of yet.
func (m *Metrics) ofName(name string) *counters {
	t := m.live.Load()
	if c := t.byName[name]; c != nil {
		return c
	}
	if m.cfg.Rules() != t.set {
		if c := m.refresh().byName[name]; c != nil {
			return c
		}
	}
	return t.other
}

// refresh looks at the live rules again. Those of the same name keep their counters; others lose them.
func (m *Metrics) refresh() *ruleTable {
	m.changing.Lock()
	defer m.changing.Unlock()
	set, old := m.cfg.Rules(), m.live.Load() // asked for under the lock, or an older set could replace a newer one
	if set == old.set || set == nil {
		return old
	}
	all := set.LimiterRules()
	t := &ruleTable{
		set: set, byRule: make(map[*sluice.Rule]*counters, len(all)), byName: make(map[string]*counters, len(all)), other: m.other,
	}
	for i, r := range slices.Concat(all, m.cfg.Keyed) {
		c := t.byName[r.Name]
		if c == nil {
			if c = old.byName[r.Name]; c == nil {
				c = new(counters)
			}
			if r.Name == otherRule {
				c = m.other // or two series would have one name
			}
			t.byName[r.Name] = c
			if i < len(all) {
				t.rules = append(t.rules, r)
			} else {
				t.keyed = append(t.keyed, r)
			}
		}
		t.byRule[r] = c
	}
	m.live.Store(t)
	return t
}

// otherRule is the label of rules that are not of the set.
const otherRule = "other"

// decided counts a decision.
func (m *Metrics) decided(_ context.Context, t sluice.Take, d sluice.Decision) {
	if t.Cost < 0 || t.Receipt != 0 || int(d.Source) >= sources {
		return // something is given back or settled, which decides nothing
	}
	c := m.of(t.Rule)
	switch {
	case d.ShadowDenied:
		c.decisions[d.Source][shadowDenied].Add(1)
	case !d.Allowed:
		c.decisions[d.Source][denied].Add(1)
	default:
		c.decisions[d.Source][allowed].Add(1)
		m.used(c, &t, &d)
		return
	}
	c.use(1000)
	m.Denied.Add(t.Rule.Name, t.Key, 1)
}

// forgave counts what a settlement was not charged.
func (m *Metrics) forgave(_ context.Context, t sluice.Take, n int64) { m.of(t.Rule).forgiven.Add(n) }

// used notes how much of its limit a key has used that was allowed something.
func (m *Metrics) used(c *counters, t *sluice.Take, d *sluice.Decision) {
	if d.Granted <= 0 || d.Limit <= 0 || d.Source == sluice.SourceFailOpen {
		return // nobody knows what remains
	}
	remaining := min(max(0, d.Remaining), d.Limit) // what others hold of it is a guess
	c.use((d.Limit - remaining) * 1000 / d.Limit)
	if 5*remaining < d.Limit {
		c.near.Add(1)
		m.Near.Add(t.Rule.Name, t.Key, 1)
	}
}

func (c *counters) use(thousandths int64) {
	for p := &c.peak[0]; ; {
		old := p.Load()
		if thousandths <= old || p.CompareAndSwap(old, thousandths) {
			return
		}
	}
}

// peakPeriod is how long a peak is remembered at least. It is forgotten after two, if somebody asks that often.
const peakPeriod = 30 * time.Second

// peakClock says when a period is over. It is looked at when metrics are asked for, and costs decisions nothing.
type peakClock struct{ began time.Time }

// next tells whether the period is over, and begins another.
func (p *peakClock) next() bool {
	now := time.Now()
	if now.Sub(p.began) < peakPeriod {
		return false
	}
	p.began = now
	return true
}

// RuleCounts is what was decided by one rule since the start.
type RuleCounts struct {
	Name                                string
	Allowed, Denied, ShadowDenied, Near int64
}

// PerRule lists the rules in the order of the configuration, and then "other" if there was any.
func (m *Metrics) PerRule() []RuleCounts {
	t := m.refresh()
	all := make([]RuleCounts, 0, len(t.rules)+len(t.keyed)+1)
	for _, rules := range [][]*sluice.Rule{t.rules, t.keyed} {
		for _, r := range rules {
			all = append(all, t.byName[r.Name].sum(r.Name))
		}
	}
	if o := m.other.sum(otherRule); t.byName[otherRule] == nil && o != (RuleCounts{Name: otherRule}) {
		all = append(all, o)
	}
	return all
}

func (c *counters) sum(name string) RuleCounts {
	n := RuleCounts{Name: name, Near: c.near.Load()}
	for i := range c.decisions {
		n.Allowed += c.decisions[i][allowed].Load()
		n.Denied += c.decisions[i][denied].Load()
		n.ShadowDenied += c.decisions[i][shadowDenied].Load()
	}
	return n
}
