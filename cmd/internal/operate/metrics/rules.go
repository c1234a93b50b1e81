package metrics

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// outcome is the result of a decision for the caller.
type outcome uint8

const (
	allowed outcome = iota
	denied
	shadowDenied
	outcomes
)

// sources is the number of sources of decisions.
const sources = int(sluice.SourceSuspended) + 1

// counters count the decisions of one rule. After a reload they count for the new rule with the same name.
type counters struct {
	decisions [sources][outcomes]atomic.Int64
	near      atomic.Int64
	forgiven  atomic.Int64
	peak      [2]atomic.Int64 // highest utilization of the limit by any key, in thousandths, in the current and the previous period
}

// ruleTable maps rules to counters. It is immutable except for the counters.
type ruleTable struct {
	set    *rules.Set
	byRule map[*sluice.Rule]*counters
	byName map[string]*counters
	rules  []*sluice.Rule // in the order of the configuration, with unique names
	keyed  []*sluice.Rule // whose names differ from those of rules
	other  *counters
}

// of returns the counters of a rule.
func (m *Metrics) of(r *sluice.Rule) *counters {
	if c := m.live.Load().byRule[r]; c != nil {
		return c
	}
	return m.ofName(r.Name)
}

// ofName returns the counters of the rule with the name. It is used for copies of rules, such as those in shadow mode, for
// rules of a set that was just replaced, and for rules of a new set that refresh has not seen yet.
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

// refresh updates the table to the rule set in use. Rules keep the counters of their name; those of removed rules are
// dropped.
func (m *Metrics) refresh() *ruleTable {
	m.changing.Lock()
	defer m.changing.Unlock()
	set, old := m.cfg.Rules(), m.live.Load() // read under the lock, because otherwise an older set could replace a newer one
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
				c = m.other // otherwise two series would have the same name
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

// otherRule is the label of rules that are not in the set.
const otherRule = "other"

// decided counts a decision.
func (m *Metrics) decided(_ context.Context, t sluice.Take, d sluice.Decision) {
	if t.Cost < 0 || t.Receipt != 0 || int(d.Source) >= sources {
		return // refunds and settlements decide nothing
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

// forgave counts the cost of a settlement that was not charged.
func (m *Metrics) forgave(_ context.Context, t sluice.Take, n int64) { m.of(t.Rule).forgiven.Add(n) }

// used records the utilization of the limit by an allowed key.
func (m *Metrics) used(c *counters, t *sluice.Take, d *sluice.Decision) {
	if d.Granted <= 0 || d.Limit <= 0 || d.Source == sluice.SourceFailOpen {
		return // the remaining quota is unknown
	}
	remaining := min(max(0, d.Remaining), d.Limit) // a local estimate may be out of range
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

// peakPeriod is the minimum time for which a peak is exported. With a shorter scrape interval it is exported for at most
// 2 × peakPeriod.
const peakPeriod = 30 * time.Second

// peakClock divides time into periods. It is read on scrapes only, so that decisions do not read the clock.
type peakClock struct{ began time.Time }

// next reports whether the period is over. If so, the next one begins.
func (p *peakClock) next() bool {
	now := time.Now()
	if now.Sub(p.began) < peakPeriod {
		return false
	}
	p.began = now
	return true
}

// RuleCounts are the decisions of one rule since the start of the process.
type RuleCounts struct {
	Name                                string
	Allowed, Denied, ShadowDenied, Near int64
}

// PerRule returns the counts of all rules in the order of the configuration, followed by "other" if it was counted.
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
