package table

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/sluiceproject/sluice/internal/group"
)

// generations have a rule's keys begin anew: slots know neither their key nor their rule, so those of a rule cannot be found.
// Instead the rule is hashed as another from then on, and what was counted before is not found any more. It wears off where
// it is.
type generations struct {
	mu  sync.Mutex                              // held to replace the map
	all atomic.Pointer[map[group.RuleID]uint64] // how often each was reset; nil: none was
}

// generation is the rule as it is hashed now.
func generation(all map[group.RuleID]uint64, rule group.RuleID) group.RuleID {
	return group.RuleID{A: rule.A, B: rule.B ^ all[rule]*0x9E3779B97F4A7C15} // as good as another digest, and itself in the first
}

// set has a rule be of a generation.
func (g *generations) set(rule group.RuleID, change func(was uint64) uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := make(map[group.RuleID]uint64, 1)
	if all := g.all.Load(); all != nil {
		next = maps.Clone(*all)
	}
	next[rule] = change(next[rule])
	g.all.Store(&next)
}

// each calls f with all rules that have begun anew.
func (g *generations) each(f func(rule group.RuleID, n uint64)) {
	if all := g.all.Load(); all != nil {
		for rule, n := range *all {
			f(rule, n)
		}
	}
}

// ResetRule forgets all states of a rule, lifts its blocks, and forgets which of its requests were charged by an ID. What a
// call does that is under way is done before.
func (t *Table) ResetRule(rule group.RuleID) {
	t.generations.set(rule, func(was uint64) uint64 { return was + 1 })
}
