package rules

import (
	"cmp"
	"net/textproto"
	"slices"
	"strings"
	"time"
)

// QueueOptions configures the delivery of queued requests of a rule with OnLimitQueue. Zero fields have defaults.
type QueueOptions struct {
	Pos Position
	// Ordered delivers the requests of one key in the order of arrival, one after the other.
	Ordered bool
	// KeepHeaders are credential headers that are stored with the request. Other credential headers are not stored.
	KeepHeaders  []string
	MaxAttempts  int           // maximum number of delivery attempts; default 10
	ExpiresAfter time.Duration // maximum age of a request; default 24h
	ResultTTL    time.Duration // how long the result is stored; default 1h
}

// WithDefaults returns the options with defaults filled in and header names in canonical form.
func (o QueueOptions) WithDefaults() QueueOptions {
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 10)
	o.ExpiresAfter = cmp.Or(o.ExpiresAfter, 24*time.Hour)
	o.ResultTTL = cmp.Or(o.ResultTTL, time.Hour)
	keep := make([]string, len(o.KeepHeaders))
	for i, name := range o.KeepHeaders {
		keep[i] = textproto.CanonicalMIMEHeaderKey(name)
	}
	o.KeepHeaders = keep
	return o
}

// MaxDeliveryAttempts bounds [QueueOptions.MaxAttempts].
const MaxDeliveryAttempts = 1000

// Charge is the charge of a request under a rule: key, cost and tier.
type Charge struct {
	Rule, Key, Tier string // Tier is "" if none applied
	Cost            int64
}

// Queued is a request that was matched before and has lost headers since, because credentials are not stored. Rules
// that read a lost header apply as they did then: they charge according to Charges with the limits of this set, and do
// not apply if Charges does not name them. All other rules are matched again.
type Queued struct {
	Withheld []string // headers that the request had and lacks now, in canonical form
	Charges  []Charge
}

// Charges returns the charges of the request, one for each rule. The texts are copies.
func (m *MatchResult) Charges() []Charge {
	var all []Charge
	for i, r := range m.Rules {
		t := &m.Takes[i]
		if n := len(all); n > 0 && all[n-1].Rule == r.Name { // another limit of the rule, or a permit
			all[n-1].Cost = max(all[n-1].Cost, t.Cost)
			continue
		}
		c := Charge{Rule: r.Name, Key: strings.Clone(t.Key), Cost: t.Cost}
		if it := m.set.names()[r.Name].item; it != nil {
			for tier, chosen := range it.tiers {
				if slices.ContainsFunc(chosen.limits, func(b bucketLimit) bool { return b.limit == t.Limit }) {
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
			return m.reject(f.rule, "denied by an override or a tier")
		}
		for j := range chosen.limits {
			m.add(f, &chosen.limits[j], c.Key, c.Cost, enforced)
		}
	}
	return nil
}
