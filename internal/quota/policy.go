package quota

import (
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
)

// policy is a rule's limit as headers say it, as far as that does not depend on the decision.
type policy struct {
	name   string // what callers know the rule by: printable ASCII
	quoted string // name as a structured field's String
	shadow bool   // callers are not told of it: it never denies
	limit  *sluice.Limit
	quota  int64
	digits string // quota in decimal
	window int64  // seconds until an unused limit that was spent at once is whole again; 0: unknown

	ietf    string // its item of Ratelimit-Policy
	draft03 string // its part of X-Ratelimit-Limit behind the quota
}

// Policies are those of the rules that a request is decided by, and the headers that list them. Where the rules differ
// from request to request there are no lists: they are put together with the rest of the headers.
type Policies struct {
	each    []*policy
	ietf    string // Ratelimit-Policy
	draft03 string // X-Ratelimit-Limit behind the quota
}

// NewPolicies prepares the headers of rules. limits[i], if there is one, applies instead of the rule's own.
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

// List lists the rules of takes and their policies.
type List struct {
	Rules   []*sluice.Rule
	several Policies // if there are several
}

// Of returns the policies of takes, good until the next use.
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

// Cache has the policies of rules and limits, made when they are first needed. There are never more than the set
// of rules has limits.
type Cache struct {
	made sync.Map // policyKey → *Policies of that one rule
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

// PoliciesOf prepares the headers of rules that gave these decisions. If there are not as many, the rules are not named.
func PoliciesOf(rules []*sluice.Rule, ds []sluice.Decision) *Policies {
	if len(rules) != len(ds) {
		return &Policies{}
	}
	ps := NewPolicies(rules)
	for i := range ds { // a limit for this call only
		if ps.each[i].quota != clampInt(ds[i].Limit) {
			ps.each[i] = unknownLimit(rules[i], ds[i].Limit).each[0]
		}
	}
	ps.list()
	return ps
}

// unknownLimit prepares the headers of a rule whose limit was chosen inside the limiter, where only the quota is seen.
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
	if limit.Algorithm == sluice.Concurrency { // how long a lease is, is no business of callers
		p.window = 0
	}
	if limit.Burst > 0 {
		p.window = p.seconds(p.quota)
	}
	p.items()
	return p
}

// items writes what lists of policies hold for this one.
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

// AppendDenied appends the names, as callers know them, of the rules that denied.
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

// isShadow reports whether decision i is that of a rule in shadow mode. A decision names its rule if a limiter made it.
func (ps *Policies) isShadow(ds []sluice.Decision, i int) bool {
	if rule := ds[i].Rule; rule != nil {
		return rule.Shadow
	}
	return i < len(ps.each) && ps.each[i].shadow
}

// mostRestrictive returns the index of the decision that headers tell of: the most restrictive of those whose rule is enforced;
// see [sluice.MostRestrictive]. It is -1 if no rule is.
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

// seconds is how long n takes at the sustained rate, rounded up and at least 1: n·Window/Count.
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

// within is the t of a Ratelimit item: how long the remaining quota is for. It is 0 if that is unknown, and for a cost that exceeds
// the limit, since clients wait for t and retry.
//
// A bucket is not given the time until it is full. One that is nearly full would promise its whole burst for a second,
// and a client that spreads what remains over t would go far beyond the rate.
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
	case d.Remaining <= 0 && p.limit.Burst == 0: // a sliding window: when the first of it wears off is not known
		return min(max(1, CeilSeconds(d.ResetAfter)), p.window)
	default:
		return p.seconds(max(1, d.Remaining))
	}
}

// maxInt is the largest Integer of a structured field (RFC 9651, section 3.3.1).
const maxInt = 999_999_999_999_999

func clampInt(n int64) int64 { return min(max(0, n), maxInt) }

// CeilSeconds rounds up: whoever waits so long does not come too early.
func CeilSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return clampInt(s)
}

// fieldText makes a name printable ASCII, which is all that a String holds: other bytes become %XX.
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

// quote writes printable ASCII as a String (RFC 9651, section 4.1.6).
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
