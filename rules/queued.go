package rules

import (
	"slices"
	"strings"
)

// Charge is what a rule charged a request for: under which key, at which cost and by which tier.
type Charge struct {
	Rule, Key, Tier string // Tier is "" if none applied
	Cost            int64
}

// Queued is a request that was matched before and has lost headers since, because credentials are not stored. Rules that
// read one of them apply as they did then: they charge what Charges says of them, with the limits of this set, and those
// that Charges does not name do not apply. All other rules are matched as ever.
type Queued struct {
	Withheld []string // headers that the request had and lacks now, as net/http spells them
	Charges  []Charge
}

// Charges lists what the request is charged, once for each rule. The texts are copies.
func (m *MatchResult) Charges() []Charge {
	var all []Charge
	for i, r := range m.Rules {
		t := &m.Takes[i]
		if n := len(all); n > 0 && all[n-1].Rule == r.Name { // another limit of the rule; in flight a request is one
			all[n-1].Cost = max(all[n-1].Cost, t.Cost)
			continue
		}
		c := Charge{Rule: r.Name, Key: strings.Clone(t.Key), Cost: t.Cost}
		if it := m.set.names()[r.Name].item; it != nil {
			for tier, chosen := range it.tiers {
				if slices.Contains(chosen.limits, t.Limit) {
					c.Tier = tier
				}
			}
		}
		all = append(all, c)
	}
	return all
}

// withheld reports whether the item reads a header that the request has lost.
func (m *MatchResult) withheld(it *item) bool {
	lost := func(attr int) bool {
		if attr < 0 {
			return false
		}
		return slices.ContainsFunc(m.set.attrs[attr].fields, func(f *Field) bool {
			return slices.Contains(m.Queued.Withheld, f.header())
		})
	}
	asks := func(ps []predicate) bool {
		return slices.ContainsFunc(ps, func(p predicate) bool { return !p.ip && lost(p.attr) })
	}
	return asks(it.predicates) || slices.ContainsFunc(it.except, asks) || lost(it.tierBy) || lost(it.costBy) ||
		slices.ContainsFunc(it.per, func(p part) bool { return !p.segment && lost(p.attr) })
}

// recharge adds the takes of rules that cannot be matched again.
func (m *MatchResult) recharge() error {
	for _, c := range m.Queued.Charges {
		i := slices.IndexFunc(m.set.fast, func(f fast) bool { return f.kind == limits && f.rule.Name == c.Rule })
		if i < 0 || !m.withheld(m.set.fast[i].item) {
			continue
		}
		f := &m.set.fast[i]
		m.Outcome = MatchLimited
		chosen, ok := f.item.overrides[c.Key]
		if !ok {
			chosen, ok = f.item.tiers[c.Tier]
		}
		if !ok {
			chosen = f.item.limits
		}
		enforced := f.enforce == 0 || f.rule.enforces(c.Key)
		if chosen.never && enforced && !f.shadow {
			return m.reject(f.rule, "is denied by name")
		}
		for j, limit := range chosen.limits {
			m.add(f, &f.item.buckets[j], limit, c.Key, c.Cost, enforced)
		}
	}
	return nil
}
