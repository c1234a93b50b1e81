package rules

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/match"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
)

// Warning is a valid but probably unintended part of a configuration.
type Warning struct {
	Pos  Position
	Rule string
	Msg  string
}

func (w Warning) String() string {
	return (&Error{Pos: w.Pos, Rule: w.Rule, Msg: w.Msg}).Error()
}

// warner collects warnings about a set.
type warner struct {
	set *Set
	all []Warning
}

func (w *warner) warn(at Position, rule, format string, args ...any) {
	w.all = append(w.all, Warning{at, rule, fmt.Sprintf(format, args...)})
}

// Warnings returns rules that can never apply, never deny or never allow, and other valid but probably unintended
// parts.
func (s *Set) Warnings() []Warning {
	w := &warner{set: s, all: slices.Clone(s.spellings)}
	for i := range s.items {
		if it := &s.items[i]; it.kind == limits {
			w.unreachable(it)
			w.limits(it)
			w.options(it.rule)
		}
	}
	w.shadowedLimits()
	w.addresses()
	w.unusedAttributes()
	w.loadClasses()
	w.all = append(w.all, domainWarnings(&s.cfg, s.domains)...)
	order := s.fileOrder()
	slices.SortStableFunc(w.all, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(order[a.Pos.File], order[b.Pos.File]), cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column))
	})
	return w.all
}

// fileOrder numbers the files of the set in the order in which they were read, as far as its rules and domains show.
func (s *Set) fileOrder() map[string]int {
	order := make(map[string]int)
	add := func(at Position) {
		if _, known := order[at.File]; !known {
			order[at.File] = len(order)
		}
	}
	for i := range s.cfg.Rules {
		add(s.cfg.Rules[i].Pos)
	}
	for i := range s.cfg.Domains {
		add(s.cfg.Domains[i].Pos)
		for j := range s.cfg.Domains[i].Descriptors { // a merged domain comes from several files
			add(s.cfg.Domains[i].Descriptors[j].Pos)
		}
	}
	for i := range s.cfg.Attributes {
		add(s.cfg.Attributes[i].Pos)
	}
	for i := range s.cfg.Priorities {
		add(s.cfg.Priorities[i].Pos)
	}
	for i := range s.cfg.AdaptiveLimits {
		add(s.cfg.AdaptiveLimits[i].Pos)
	}
	for i := range s.cfg.DenyList {
		add(s.cfg.DenyList[i].Pos)
	}
	for i := range s.cfg.AllowList {
		add(s.cfg.AllowList[i].Pos)
	}
	return order
}

// unreachable warns of a rule that no request can match.
func (w *warner) unreachable(it *item) {
	r := it.rule
	for i := range it.except {
		if covers(it.except[i], it.predicates) {
			w.warn(r.Except[i].Pos, r.Name, "is never reached: except matches all of its requests")
		}
	}
	for i := range w.set.items {
		list := &w.set.items[i]
		if list.kind == limits {
			break
		}
		if covers(list.predicates, it.predicates) {
			name := [...]string{"deny", "allow"}[list.kind]
			w.warn(r.Pos, r.Name, "is never reached: the %s list matches all of its requests, %s", name, list.source.Pos.or(fmt.Sprintf("in entry %d", 1+entryIndex(w.set.items, i))))
		}
	}
}

// entryIndex returns the index of an item within its list.
func entryIndex(items []item, i int) int {
	return i - slices.IndexFunc(items, func(it item) bool { return it.kind == items[i].kind })
}

// covers reports whether every request that matches the narrow conditions also matches the wide ones. It may return
// false if they do, never the reverse.
func covers(wide, narrow []predicate) bool {
	for i := range wide {
		if !slices.ContainsFunc(narrow, func(n predicate) bool { return wide[i].covers(&n) }) {
			return false
		}
	}
	return true
}

func (p *predicate) covers(n *predicate) bool {
	if p.attr != n.attr || p.not || n.not {
		return p.attr == n.attr && p.source.String() == n.source.String()
	}
	if p.present != nil || n.present != nil || len(n.starts)+len(n.ends)+len(n.regexps)+len(n.below) > 0 {
		return p.source.String() == n.source.String()
	}
	for v := range n.values {
		if !p.fits(v) {
			return false
		}
	}
	for _, narrow := range n.patterns {
		if !slices.ContainsFunc(p.patterns, func(wide *match.Pattern) bool { return wide.Covers(narrow) }) {
			return false
		}
	}
	return p.addrs.Covers(n.addrs)
}

// limits warns of limits that never allow, or are inexact.
func (w *warner) limits(it *item) {
	r := it.rule
	each := func(what string, list []Limit) {
		for i := range list {
			l := &list[i]
			if l.Unlimited || l.DenyAll {
				continue
			}
			capacity := cmp.Or(l.Limit.Burst, l.Limit.Count) + l.Limit.SoftExcess
			switch cost := &r.Cost; {
			case l.Limit.Algorithm == sluice.Concurrency: // one request takes one permit, regardless of its cost
			case cost.Default > capacity && cost.From != nil:
				w.warn(l.Pos, r.Name, "never allows requests without %s%s: they cost %d (cost: default), more than the maximum of %d at once", cost.From.Name, what, cost.Default, capacity)
			case cost.Default > capacity:
				w.warn(l.Pos, r.Name, "never allows a request%s: each costs %d, more than the maximum of %d at once", what, cost.Default, capacity)
			case cost.From != nil && cost.Max > capacity:
				w.warn(l.Pos, r.Name, "a request may cost up to %d (cost: max), but requests above %d are never allowed%s", cost.Max, capacity, what)
			}
			if l.Limit.Algorithm == sluice.Concurrency {
				w.concurrency(r, l, what)
				continue
			}
			w.tooShort(r, l, what)
			if l.Warning != "" {
				w.warn(l.Pos, r.Name, "%s", l.Warning)
			}
			if l.Limit.Algorithm == sluice.SlidingWindowCounter && l.Limit.Count < 10 && l.Limit.SubWindows < 2 {
				w.warn(l.Pos, r.Name, "sliding_window_counter rounds its estimate to whole requests, a large error for a limit of %d: use sliding_window_log, which is exact and costs the same here", l.Limit.Count)
			}
		}
	}
	each("", r.Limits)
	if r.Tiers != nil {
		for _, value := range slices.Sorted(maps.Keys(r.Tiers.Limits)) {
			w.otherKinds(r, value, r.Tiers.Limits[value])
			each(fmt.Sprintf(" in tier %q", value), r.Tiers.Limits[value])
		}
	}
	for i := range r.Overrides {
		each(fmt.Sprintf(" for %s", strings.Join(r.Overrides[i].Key, ", ")), r.Overrides[i].Limits)
	}
}

// otherKinds warns of a tier that does not share the rule's buckets: its limits are of another kind than those with the
// same name, or have other names. A limit of the tier with its own name is intended.
func (w *warner) otherKinds(r *Rule, tier string, list []Limit) {
	for i := range list {
		name := r.limitName(list, i)
		own := -1
		for j := range r.Limits {
			if r.limitName(r.Limits, j) == name {
				own = j
			}
		}
		switch l := &list[i]; {
		case l.Unlimited || l.DenyAll || l.Limit.Algorithm == sluice.Concurrency:
		case own < 0 && l.Name == "" && i < len(r.Limits):
			w.warn(l.Pos, r.Name, "counts tier %q separately: its limit has the name %s and the rule's limit %s: "+
				"add name: %s to the tier's limit, or a key that changes its tier starts with an empty bucket",
				tier, name, r.limitName(r.Limits, i), r.Limits[i].Name)
			return
		case own < 0 || r.Limits[own].Limit.Algorithm == sluice.Concurrency:
		case kindOf(&l.Limit) != kindOf(&r.Limits[own].Limit):
			w.warn(l.Pos, r.Name, "counts tier %q separately, because its algorithm, refill or sub_windows differ from the rule's limit: "+
				"a key that changes its tier starts with an empty bucket", tier)
			return
		}
	}
}

// kindOf returns a text that is equal for limits that can read each other's state.
func kindOf(l *sluice.Limit) string {
	built, err := l.Build()
	if err != nil {
		return ""
	}
	return private.CounterKind(built)
}

// concurrency warns of a permit TTL that is too short.
func (w *warner) concurrency(r *Rule, l *Limit, what string) {
	if l.Limit.Window < time.Second {
		w.warn(l.Pos, r.Name, "permit_ttl: permits expire after a pause of %v%s, while requests are still in flight: use 10s or more", l.Limit.Window, what)
	}
}

// tooShort warns of a limit that can be used up long before other instances see the usage.
func (w *warner) tooShort(r *Rule, l *Limit, what string) {
	const fine = 20 // times the staleness: with twice the limit offered, admitted ≤ 110 %
	staleness := sluice.MaxStaleness(sluice.DefaultStoreTimeout)
	capacity := float64(cmp.Or(l.Limit.Burst, l.Limit.Count))
	spent := capacity / l.Limit.Rate() // seconds, at the limit's own rate
	if r.Accuracy != sluice.AccuracyEventual || !private.SupportsEventual(&l.Limit) || !(spent < fine*staleness.Seconds()) {
		return
	}
	instead := "exact"
	if private.SupportsLease(&l.Limit) {
		instead = "lease or exact"
	}
	w.warn(l.Pos, r.Name, "accuracy: eventual is inexact for %v%s: at twice the rate it may be exceeded by %.0f%%, because instances see each other's usage only after %v: use %s, or a limit that lasts %v or longer",
		l.Limit, what, 200*staleness.Seconds()/spent, staleness, instead, fine*staleness)
}

func (w *warner) options(r *Rule) {
	for _, ref := range r.Per {
		if ref.Name == "path" {
			w.warn(ref.Pos, r.Name, "per: path gives every path its own bucket, also paths that do not exist: use a {name} of the path instead, as in per: [path:id]")
		}
	}
}

// shadowedLimits warns of rules that can never deny because another rule denies first.
func (w *warner) shadowedLimits() {
	groups := make(map[string][]*item)
	for i := range w.set.items {
		it := &w.set.items[i]
		if it.kind == limits && w.simple(it.rule) {
			names := make([]string, 0, len(it.per))
			for j := range it.per {
				names = append(names, it.per[j].name)
			}
			slices.Sort(names)
			k := strings.Join(names, "\x00")
			groups[k] = append(groups[k], it)
		}
	}
	const most = 300 // maximum number of rules that are compared with each other
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		group := groups[key]
		if len(group) > most {
			continue
		}
		w.idle(group)
	}
}

// idle warns of the rules of a group that another rule makes ineffective. It names a rule that can itself deny.
func (w *warner) idle(group []*item) {
	// Of rules that deny the same requests, the first denies.
	makesIdle := func(i, j int) bool {
		return i != j && shadows(group[i], group[j]) && (i < j || !shadows(group[j], group[i]))
	}
	var idle []int
	denies := make([]bool, len(group))
	for j := range group {
		denies[j] = true
		for i := range group {
			denies[j] = denies[j] && !makesIdle(i, j)
		}
		if !denies[j] {
			idle = append(idle, j)
		}
	}
	for _, j := range idle {
		by := -1
		for i := range group {
			if makesIdle(i, j) && (by < 0 || denies[i] && !denies[by]) {
				by = i
			}
		}
		other := group[by].rule
		w.warn(group[j].rule.Pos, group[j].rule.Name, "can never deny: rule %q %s has the same keys, applies to the same requests and is at least as strict",
			other.Name, other.Pos.or("of this set"))
	}
}

// shadows reports whether rule a denies every request that b would deny, also while the store is unavailable.
func shadows(a, b *item) bool {
	return stricter(a, b) && covers(a.predicates, b.predicates) && (a.rule.OnFailure == b.rule.OnFailure || b.rule.OnFailure == sluice.FailOpen) && a.rule.Accuracy == b.rule.Accuracy
}

// simple reports whether a rule consists of one limit without other settings.
func (w *warner) simple(r *Rule) bool {
	return len(r.Limits) == 1 && r.Tiers == nil && len(r.Overrides) == 0 && len(r.Except) == 0 && !r.Shadow && r.EnforceBasisPoints == 0 &&
		r.Cost == (Cost{Pos: r.Cost.Pos, Default: r.Cost.Default}) && r.OnLimit == OnLimitDeny && !r.ChargeDenied && len(r.ChargeStatus) == 0 && r.ActualCost == nil &&
		r.OnMissing == MissingShare
}

// stricter reports whether b allows every request that a allows.
func stricter(a, b *item) bool {
	x, y := a.limits.limits, b.limits.limits
	if len(x) != 1 || len(y) != 1 || a.rule.Cost.Default < b.rule.Cost.Default {
		return false
	}
	l, m := x[0].limit, y[0].limit
	if l.Algorithm != m.Algorithm || l.Refill != m.Refill || l.Align != m.Align || l.SoftExcess != 0 || m.SoftExcess != 0 || m.Initial != 0 || l.SubWindows != m.SubWindows {
		return false
	}
	if l.Algorithm == sluice.TokenBucket || l.Algorithm == sluice.LeakyBucket {
		return l.Refill == sluice.RefillContinuous && l.Burst <= m.Burst && product(l.Count, int64(m.Window)) <= product(m.Count, int64(l.Window))
	}
	return l.Window == m.Window && l.Calendar == m.Calendar && l.Zone == m.Zone && l.Count <= m.Count
}

// product returns a·b as a float, which is enough to compare rates: exact while it fits.
func product(a, b int64) float64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return float64(hi)*(1<<64) + float64(lo)
}

// addresses warns of counting per address without a client_ip section.
func (w *warner) addresses() {
	ip := &w.set.cfg.ClientIP
	if ip.Pos != (Position{}) || len(ip.TrustedProxies) > 0 || ip.ProxyHops > 0 {
		return
	}
	for i := range w.set.items {
		it := &w.set.items[i]
		for j := range it.per {
			if p := &it.per[j]; p.attr >= 0 && w.set.attrs[p.attr].ip {
				w.warn(it.rule.Per[j].Pos, it.rule.Name, "counts per address of the connection: behind a proxy or load balancer, all clients share one address: "+
					"list your proxies in client_ip: {trusted_proxies: [10.0.0.0/8]}, or write client_ip: {trusted_proxies: []} if there are none")
				return
			}
		}
	}
}

func (w *warner) unusedAttributes() {
	for i := range w.set.cfg.Attributes {
		a := &w.set.cfg.Attributes[i]
		if !w.set.used[a.Name] {
			w.warn(a.Pos, "", "attribute %q is declared and never used", a.Name)
		}
	}
}
