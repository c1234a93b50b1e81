package quota

import (
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
)

// policy holds the parts of the headers for a rule's limit that do not depend on the decision.
type policy struct {
	name   string // the rule's name in printable ASCII, as clients see it
	quoted string // name as a String of a structured field
	shadow bool   // not listed in headers, because it never denies
	limit  *sluice.Limit
	quota  int64
	digits string // quota in decimal
	window int64  // seconds until a fully used limit is fully available again; 0: unknown

	ietf    string // its item of Ratelimit-Policy
	draft03 string // its part of X-Ratelimit-Limit after the quota
}

// Policies holds the policies of the rules that apply to a request, and the headers that list them. If the rules differ
// between requests, ietf and draft03 are empty and are built together with the other headers.
type Policies struct {
	each    []*policy
	ietf    string // Ratelimit-Policy
	draft03 string // X-Ratelimit-Limit after the quota
}

// NewPolicies returns the policies of rules. limits[i], if present, replaces the limit of rules[i].
func NewPolicies(rules []*sluice.Rule, limits ...*sluice.Limit) *Policies {
	ps := &Policies{each: make([]*policy, len(rules))}
	for i, rule := range rules {
		limit := &rule.Limit
		if i < len(limits) {
			limit = limits[i]
		}
		ps.each[i] = newPolicy(rule, limit)
	}
	ps.list()
	return ps
}

// List is a reusable list of the rules of takes and their policies.
type List struct {
	Rules   []*sluice.Rule
	several Policies // used if there are several takes
}

// Of returns the policies of takes. The result is valid until the next call.
func (l *List) Of(c *Cache, takes []sluice.Take) *Policies {
	l.Rules, l.several.each = l.Rules[:0], l.several.each[:0]
	for i := range takes {
		l.Rules = append(l.Rules, takes[i].Rule)
		one := c.of(&takes[i])
		if len(takes) == 1 {
			return one
		}
		l.several.each = append(l.several.each, one.each[0])
	}
	return &l.several
}

// Cache caches the policies by rule and limit. It is filled on demand and never has more entries than the rule set has
// limits.
type Cache struct {
	made sync.Map // policyKey → *Policies of one rule
}

type policyKey struct {
	rule  *sluice.Rule
	limit *sluice.Limit
}

func (c *Cache) of(t *sluice.Take) *Policies {
	k := policyKey{t.Rule, t.EffectiveLimit()}
	if ps, ok := c.made.Load(k); ok {
		return ps.(*Policies)
	}
	ps, _ := c.made.LoadOrStore(k, NewPolicies([]*sluice.Rule{k.rule}, k.limit))
	return ps.(*Policies)
}

// PoliciesOf returns the policies of rules, where ds[i] is the decision of rules[i]. If their numbers differ, it returns
// Policies that name no rules.
func PoliciesOf(rules []*sluice.Rule, ds []sluice.Decision) *Policies {
	if len(rules) != len(ds) {
		return &Policies{}
	}
	ps := NewPolicies(rules)
	for i := range ds { // the limit may have been chosen for this call only
		if ps.each[i].quota != clampInt(ds[i].Limit) {
			ps.each[i] = unknownLimit(rules[i], ds[i].Limit).each[0]
		}
	}
	ps.list()
	return ps
}

// unknownLimit returns the policies of a rule whose limit the limiter has chosen, so that only the quota is known.
func unknownLimit(rule *sluice.Rule, quota int64) *Policies {
	p := &policy{name: fieldText(rule.Name), shadow: rule.Shadow, quota: clampInt(quota)}
	p.items()
	ps := &Policies{each: []*policy{p}}
	ps.list()
	return ps
}

func newPolicy(rule *sluice.Rule, limit *sluice.Limit) *policy {
	p := &policy{name: fieldText(rule.Name), shadow: rule.Shadow, limit: limit, quota: clampInt(limit.Count + limit.SoftExcess)}
	if limit.Burst > 0 {
		p.quota = clampInt(limit.Burst)
	}
	p.window = max(1, CeilSeconds(limit.Window))
	if limit.Algorithm == sluice.Concurrency { // the permit TTL is internal
		p.window = 0
	}
	if limit.Burst > 0 {
		p.window = p.seconds(p.quota)
	}
	p.items()
	return p
}

// items sets the parts of the policy lists for this policy.
func (p *policy) items() {
	p.quoted, p.digits = quote(p.name), strconv.FormatInt(p.quota, 10)
	window := ""
	if p.window > 0 {
		window = ";w=" + strconv.FormatInt(p.window, 10)
	}
	unit := ""
	if p.limit != nil && p.limit.Algorithm == sluice.Concurrency {
		unit = `;qu="concurrent-requests"`
	}
	p.ietf = p.quoted + ";q=" + p.digits + unit + window
	p.draft03 = ", " + p.digits + window + ";name=" + p.quoted
}

// AppendDenied appends the names of the rules that denied, as clients see them.
func (ps *Policies) AppendDenied(names []string, ds []sluice.Decision) []string {
	for i := range ps.each {
		if !ds[i].Allowed {
			names = append(names, ps.each[i].name)
		}
	}
	return names
}

func (ps *Policies) list() {
	ps.ietf, ps.draft03 = string(ps.appendIETF(nil)), ps.listDraft03()
}

func (ps *Policies) appendIETF(b []byte) []byte {
	first := true
	for _, p := range ps.each {
		if p.shadow {
			continue
		}
		if !first {
			b = append(b, ", "...)
		}
		first = false
		b = append(b, p.ietf...)
	}
	return b
}

func (ps *Policies) listDraft03() string {
	var b strings.Builder
	for _, p := range ps.each {
		if !p.shadow {
			b.WriteString(p.draft03)
		}
	}
	return b.String()
}

// isShadow reports whether decision i is by a rule in shadow mode. Decisions of a limiter contain their rule.
func (ps *Policies) isShadow(ds []sluice.Decision, i int) bool {
	if rule := ds[i].Rule; rule != nil {
		return rule.Shadow
	}
	return i < len(ps.each) && ps.each[i].shadow
}

// mostRestrictive returns the index of the most restrictive decision by an enforced rule, see [sluice.MostRestrictive], or
// -1 if no rule is enforced.
func (ps *Policies) mostRestrictive(ds []sluice.Decision) int {
	best := -1
	for i := range ds {
		switch {
		case ps.isShadow(ds, i):
		case best < 0:
			best = i
		default:
			if two := [2]sluice.Decision{ds[best], ds[i]}; sluice.MostRestrictive(two[:]) == 1 {
				best = i
			}
		}
	}
	return best
}

// seconds returns the time that a cost of n takes at the sustained rate, n × Window/Count, rounded up and at least 1.
func (p *policy) seconds(n int64) int64 {
	if p.limit.Count <= 0 {
		return max(1, CeilSeconds(p.limit.Window))
	}
	hi, lo := bits.Mul64(uint64(n), uint64(p.limit.Window.Microseconds()))
	if hi >= uint64(p.limit.Count) {
		return maxInt
	}
	micros, rem := bits.Div64(hi, lo, uint64(p.limit.Count))
	if rem > 0 {
		micros++
	}
	s := micros / 1e6
	if micros%1e6 > 0 {
		s++
	}
	return clampInt(int64(max(1, s)))
}

// within returns the t of a Ratelimit item: the time in seconds that the remaining quota must last. It returns 0 if that is
// unknown, or if the cost exceeds the limit, because clients wait for t and retry.
//
// For a bucket, t is not the time until it is full. Otherwise a nearly full bucket would offer its whole burst for 1 s, and a
// client that spreads the remaining quota over t would far exceed the rate.
func (p *policy) within(d *sluice.Decision) int64 {
	switch {
	case !d.Allowed && d.ExceedsLimit:
		return 0
	case d.RetryAfter > 0 || !d.Allowed:
		return max(1, CeilSeconds(d.RetryAfter))
	case p.limit == nil || p.limit.Algorithm == sluice.Concurrency:
		return 0
	case p.limit.Algorithm == sluice.FixedWindow:
		if d.ResetAfter <= 0 {
			return p.window
		}
		return max(1, CeilSeconds(d.ResetAfter))
	case d.Remaining <= 0 && p.limit.Burst == 0: // a sliding window: the time when the first usage expires is unknown
		return min(max(1, CeilSeconds(d.ResetAfter)), p.window)
	default:
		return p.seconds(max(1, d.Remaining))
	}
}

// maxInt is the largest Integer of a structured field (RFC 9651, section 3.3.1).
const maxInt = 999_999_999_999_999

func clampInt(n int64) int64 { return min(max(0, n), maxInt) }

// CeilSeconds returns d in seconds, rounded up, so that a client that waits this long does not retry too early.
func CeilSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return clampInt(s)
}

// fieldText converts a name to printable ASCII, the only characters of a String: other bytes become %XX.
func fieldText(name string) string {
	for i := 0; i < len(name); i++ {
		if name[i] < ' ' || name[i] > '~' {
			return percentEncode(name)
		}
	}
	return name
}

func percentEncode(name string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if c := name[i]; c < ' ' || c > '~' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// quote returns printable ASCII as a String (RFC 9651, section 4.1.6).
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(text); i++ {
		if text[i] == '"' || text[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	b.WriteByte('"')
	return b.String()
}
