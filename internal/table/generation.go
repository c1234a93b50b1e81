package table

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/sluiceproject/sluice/internal/group"
)

// generations reset all keys of a rule. Slots contain neither their key nor their rule, so those of a rule cannot be
// found. Instead the rule is hashed differently from then on, so that its old states are no longer found. They expire
// in place.
type generations struct {
	mu  sync.Mutex                              // held while the map is replaced
	all atomic.Pointer[map[group.RuleID]uint64] // number of resets per rule; nil if there were none
}

// generation returns the rule ID that is hashed now.
func generation(all map[group.RuleID]uint64, rule group.RuleID) group.RuleID {
	return group.RuleID{A: rule.A, B: rule.B ^ all[rule]*0x9E3779B97F4A7C15} // as good as another digest; unchanged before the first reset
}

// set changes the generation of a rule.
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

// each calls f for all rules that were reset.
func (g *generations) each(f func(rule group.RuleID, n uint64)) {
	if all := g.all.Load(); all != nil {
		for rule, n := range *all {
			f(rule, n)
		}
	}
}

// ResetRule deletes all states, blocks and idempotency IDs of a rule. Calls in progress take effect before the reset.
func (t *Table) ResetRule(rule group.RuleID) {
	t.generations.set(rule, func(was uint64) uint64 { return was + 1 })
}
