package interop

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	kinds "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A node is a rule, as far as the generator uses it.
type node struct {
	Key, Value  string
	Descriptors []node
}

// A generator generates random requests near the rules of some files: requests that match, that almost match, and that
// were sent before.
type generator struct {
	*rand.Rand
	domains   map[string][]node
	names     []string // of the domains
	overrides []kinds.RateLimitUnit
	seen      map[string]string // entries by the text to which the reference joins them
}

func newGenerator(t testing.TB, seed uint64, rules map[string]string) *generator {
	t.Helper()
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 7)), domains: map[string][]node{}, seen: map[string]string{}}
	for _, name := range sorted(rules) {
		var root struct {
			Domain      string
			Descriptors []node
		}
		if err := yaml.Unmarshal([]byte(rules[name]), &root); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		g.domains[root.Domain] = append(g.domains[root.Domain], root.Descriptors...)
	}
	g.names = sorted(g.domains)
	g.overrides = overrideUnits(time.Now())
	return g
}

// chance reports whether a random event of probability 1/n occurs.
func (g *generator) chance(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *rand.Rand, from ...T) T { return from[g.IntN(len(from))] }

func (g *generator) request() *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: pick(g.Rand, g.names...)}
	switch {
	case g.chance(100):
		r.Domain = ""
	case g.chance(25):
		r.Domain = pick(g.Rand, "nowhere", "no:where|10.0.0.1")
	}
	if g.chance(3) {
		r.HitsAddend = pick[uint32](g.Rand, 1, 1, 2, 3, 7, 100, 1_000_000)
	}
	n := pick(g.Rand, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6)
	if g.chance(100) {
		n = 0
	}
	for len(r.Descriptors) < n {
		if len(r.Descriptors) > 0 && g.chance(8) {
			r.Descriptors = append(r.Descriptors, pick(g.Rand, r.Descriptors...))
			continue
		}
		if d := g.descriptor(r.Domain); g.distinct(r.Domain, d) {
			r.Descriptors = append(r.Descriptors, d)
		}
	}
	return r
}

// distinct reports whether no other descriptor was sent that the reference would count under the same key, because it
// joins texts that may contain the separator. Sluice counts such descriptors separately.
func (g *generator) distinct(domain string, d *entries.RateLimitDescriptor) bool {
	joined, exact := domain, domain
	for _, e := range d.Entries {
		joined += "_" + e.Key + "_" + e.Value
		exact += fmt.Sprintf(" %q=%q", e.Key, e.Value)
	}
	before, ok := g.seen[joined]
	g.seen[joined] = exact
	return !ok || before == exact
}

func (g *generator) descriptor(domain string) *entries.RateLimitDescriptor {
	d := new(entries.RateLimitDescriptor)
	level := g.domains[domain]
	for {
		e, next := g.entry(level)
		d.Entries = append(d.Entries, e)
		level = next
		if len(level) == 0 && !g.chance(12) || g.chance(6) || len(d.Entries) == 5 {
			break
		}
	}
	if g.chance(60) {
		d.Entries = nil
	}
	if g.chance(4) {
		d.HitsAddend = wrapperspb.UInt64(pick[uint64](g.Rand, 0, 0, 1, 2, 5, 30))
	}
	if g.chance(12) && len(g.overrides) > 0 {
		d.Limit = &entries.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: pick[uint32](g.Rand, 0, 1, 5, 30), Unit: pick(g.Rand, g.overrides...),
		}
	}
	return d
}

// entry mostly selects a rule of the level, and returns the level below it.
func (g *generator) entry(level []node) (*entries.RateLimitDescriptor_Entry, []node) {
	e := &entries.RateLimitDescriptor_Entry{
		Key:   pick(g.Rand, "path", "file", "k1", "k2", "", "other"),
		Value: g.value(),
	}
	if len(level) == 0 || g.chance(15) {
		return e, nil
	}
	n := level[g.IntN(len(level))]
	e.Key = strings.ReplaceAll(n.Key, "*", pick(g.Rand, "", "fix"))
	switch {
	case g.chance(20): // a value of another rule, or of none
	case n.Value != "":
		e.Value = strings.ReplaceAll(n.Value, "*", pick(g.Rand, "", "a", "b", "a/b", "*"))
	}
	return e, n.Descriptors
}

func (g *generator) value() string {
	return pick(g.Rand, "", "a", "b", "abc", "gold", "/login", "10.1.2.3", "v:1|2", "é", "files/a", "/LOGIN")
}

// overrideUnits returns the units whose current window started when no other unit's did. The reference's keys contain
// the start of the window and not its length, so that, for example, in the first hour of a day one descriptor's hour
// and day share a counter.
func overrideUnits(now time.Time) (units []kinds.RateLimitUnit) {
	starts := map[kinds.RateLimitUnit]int64{}
	for unit, length := range unitSeconds {
		starts[unit] = now.Unix() / length * length
	}
	for unit, start := range starts {
		same := 0
		for _, other := range starts {
			if other == start {
				same++
			}
		}
		if same == 1 {
			units = append(units, unit)
		}
	}
	slices.Sort(units)
	return units
}

// unitSeconds are the lengths of the windows in these tests. None ends during a run, because a run during which an hour
// ends is repeated.
var unitSeconds = map[kinds.RateLimitUnit]int64{
	kinds.RateLimitUnit_HOUR:                                  3600,
	kinds.RateLimitUnit_DAY:                                   86400,
	kinds.RateLimitUnit(rls.RateLimitResponse_RateLimit_WEEK): 7 * 86400,
	kinds.RateLimitUnit_MONTH:                                 30 * 86400,
	kinds.RateLimitUnit_YEAR:                                  365 * 86400,
}

// randomRules returns a file of random rules for a domain.
func randomRules(seed uint64, domain string) string {
	r := rand.New(rand.NewPCG(seed, 11))
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n", domain)
	writeLevel(&b, r, 0)
	return b.String()
}

// writeLevel writes the rules of one level, with limits in YAML's flow style to avoid indentation.
func writeLevel(b *strings.Builder, r *rand.Rand, depth int) {
	used := map[string]bool{}
	indent := strings.Repeat("  ", 2*depth+1)
	for range 2 + r.IntN(5) {
		key := pick(r, "k1", "k2", "k_3", "user", "path")
		value := pick(r, "", "", "a", "b", "a*", "*", "b/*", "abc", "a_b")
		if used[key+"_"+value] {
			continue
		}
		used[key+"_"+value] = true
		fmt.Fprintf(b, "%s- key: %s\n", indent, key)
		if value != "" {
			fmt.Fprintf(b, "%s  value: %q\n", indent, value)
		}
		if strings.HasSuffix(value, "*") && r.IntN(2) == 0 {
			fmt.Fprintf(b, "%s  share_threshold: true\n", indent)
		}
		for _, option := range []string{"shadow_mode", "detailed_metric", "value_to_metric"} {
			if r.IntN(6) == 0 {
				fmt.Fprintf(b, "%s  %s: true\n", indent, option)
			}
		}
		if r.IntN(4) > 0 {
			fmt.Fprintf(b, "%s  rate_limit: {%s}\n", indent, randomLimit(r))
		}
		if depth < 3 && r.IntN(3) > 0 {
			fmt.Fprintf(b, "%s  descriptors:\n", indent)
			writeLevel(b, r, depth+1)
		}
	}
}

func randomLimit(r *rand.Rand) string {
	var parts []string
	name := pick(r, "", "", "n1", "n2", "n3")
	if name != "" {
		parts = append(parts, "name: "+name)
	}
	if other := pick(r, "n1", "n2", "n4"); r.IntN(8) == 0 && other != name {
		parts = append(parts, "replaces: [{name: "+other+"}]")
	}
	if r.IntN(10) == 0 {
		return strings.Join(append(parts, "unlimited: true"), ", ")
	}
	unit := pick(r, "hour", "HOUR", "day", "Week", "month", "year")
	count := pick(r, 0, 1, 2, 3, 5, 10, 25, 100, 4294967295)
	return strings.Join(append(parts, "unit: "+unit, fmt.Sprint("requests_per_unit: ", count)), ", ")
}
