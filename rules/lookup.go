package rules

import (
	"maps"
	"slices"

	"github.com/sluiceproject/sluice"
)

// LookupLimits returns the rule of a name ("posts-per-user#2", "messaging/message_type"), and the limits that its takes
// may have for a key, without duplicates. The first is that of the key's override, or else the rule's; tiers have
// others. The rule is nil if the set does not have it.
func (s *Set) LookupLimits(name, key string) (*sluice.Rule, []*sluice.Limit) {
	switch n := s.names()[name]; {
	case n.item != nil:
		for i := range n.item.buckets {
			if rule := n.item.buckets[i].enforced; rule.Name == name {
				return rule, n.item.limitsOf(&n.item.buckets[i], key)
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

// limitsOf returns the limits that a bucket may have for a key.
func (it *item) limitsOf(b *bucket, key string) (all []*sluice.Limit) {
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
		if limit := c.limitOf(b); limit != nil && !known[limit.String()] {
			known[limit.String()] = true
			all = append(all, limit)
		}
	}
	return all
}

// limitOf returns the limit that counts in the bucket, or nil.
func (c *choice) limitOf(b *bucket) *sluice.Limit {
	for i := range c.limits {
		if c.limits[i].bucket == *b {
			return c.limits[i].limit
		}
	}
	return nil
}
