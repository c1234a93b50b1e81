package rules

import (
	"maps"
	"slices"

	"github.com/sluiceproject/sluice"
)

// LookupLimits finds what takes of a rule's name ("posts-per-user#2", "messaging/message_type") and key are of: the rule, and the
// limits that they may have, each once. The first is the key's own if an override says so, and else the rule's; tiers
// have others. A rule that the set does not have is nil.
func (s *Set) LookupLimits(name, key string) (*sluice.Rule, []*sluice.Limit) {
	switch n := s.names()[name]; {
	case n.item != nil:
		for i := range n.item.buckets {
			if rule := n.item.buckets[i].enforced; rule.Name == name {
				return rule, n.item.limitsOf(i, key)
			}
		}
	case n.limit != nil:
		for _, rule := range n.limit.Rules {
			if rule.Name == name {
				return rule, []*sluice.Limit{&rule.Limit}
			}
		}
	}
	return nil, nil
}

// limitsOf are the limits that a bucket may have for a key.
func (it *item) limitsOf(bucket int, key string) (all []*sluice.Limit) {
	choices := []choice{it.limits}
	if own, ok := it.overrides[key]; ok {
		choices = []choice{own}
	} else {
		for _, tier := range slices.Sorted(maps.Keys(it.tiers)) {
			choices = append(choices, it.tiers[tier])
		}
	}
	known := make(map[string]bool)
	for _, c := range choices {
		if bucket < len(c.limits) && !known[c.limits[bucket].String()] {
			known[c.limits[bucket].String()] = true
			all = append(all, c.limits[bucket])
		}
	}
	return all
}
