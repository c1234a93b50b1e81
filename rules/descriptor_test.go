package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/keyenc"
)

// perMinute returns a limit as in files of Envoy's service.
func perMinute(n int64) []Limit {
	return []Limit{{Limit: sluice.Per(n, time.Minute).WithAlgorithm(sluice.FixedWindow)}}
}

// forest contains the rules of one level.
type forest = []DescriptorRule

// node returns a rule without a limit, limited one with a limit.
func node(k, value string, below ...DescriptorRule) DescriptorRule {
	return DescriptorRule{Key: k, Value: value, Descriptors: below}
}

func limited(k, value string, below ...DescriptorRule) DescriptorRule {
	return DescriptorRule{Key: k, Value: value, Descriptors: below, Limits: perMinute(10)}
}

func (r DescriptorRule) with(change func(*DescriptorRule)) DescriptorRule {
	change(&r)
	return r
}

func named(name string, replaces ...string) func(*DescriptorRule) {
	return func(r *DescriptorRule) { r.Name, r.Replaces = name, replaces }
}

func unlimited(r *DescriptorRule)     { r.Unlimited, r.Limits = true, nil }
func sharing(r *DescriptorRule)       { r.ShareThreshold = true }
func valueToMetric(r *DescriptorRule) { r.ValueToMetric = true }
func detailed(r *DescriptorRule)      { r.DetailedMetric = true }

// entries returns entries of pairs of keys and values.
func entries(pairs ...string) []Entry {
	var all []Entry
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, Entry{pairs[i], pairs[i+1]})
	}
	return all
}

func mustTree(t testing.TB, rules ...DescriptorRule) *domainTree {
	t.Helper()
	trees, faults := compileDomains(&Config{Domains: []Domain{{Name: "d", Descriptors: rules}}}, new(place))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return trees["d"]
}

// found returns the full key of the limit that a descriptor finds, without the domain.
func found(t *domainTree, entries []Entry) string {
	var m DescriptorMatches
	t.match([]Descriptor{{Entries: entries, Cost: 1}}, &m)
	if m.Matches[0].Limit == nil {
		return ""
	}
	return strings.TrimPrefix(m.Matches[0].Limit.FullKey, "d.")
}

// matchings describe how Envoy's service matches one descriptor.
var matchings = []struct {
	name    string
	rules   forest
	entries []Entry
	want    string // composites of the rule whose limit is found, or none
}{
	{"exact: key and value", forest{limited("k", "v")}, entries("k", "v"), "k_v"},
	{
		"exact before wildcard, whatever the order",
		forest{limited("k", "*"), limited("k", "v")},
		entries("k", "v"), "k_v",
	},
	{"exact before key only", forest{limited("k", ""), limited("k", "v")}, entries("k", "v"), "k_v"},
	{"wildcard before key only", forest{limited("k", ""), limited("k", "v*")}, entries("k", "vw"), "k_v*"},
	{
		"first wildcard wins, not the longest",
		forest{limited("k", "v*"), limited("k", "vwx*")},
		entries("k", "vwxy"), "k_v*",
	},
	{
		"first wildcard wins, not the shortest",
		forest{limited("k", "vwx*"), limited("k", "v*")},
		entries("k", "vwxy"), "k_vwx*",
	},
	{
		"a later wildcard if the first does not match",
		forest{limited("k", "vwx*"), limited("k", "v*")},
		entries("k", "vw"), "k_v*",
	},
	{
		"wildcards of this level only",
		forest{limited("k", "*"), node("a", "", limited("b", ""))},
		entries("a", "1", "k", "v"), "",
	},
	{"wildcards below the top", forest{node("a", "", limited("k", "v*"))}, entries("a", "1", "k", "vw"), "a.k_v*"},
	{"key only for any value", forest{limited("k", "")}, entries("k", "v"), "k"},
	{"key only for no value", forest{limited("k", "")}, entries("k", ""), "k"},
	{"no rule", forest{limited("k", "v")}, entries("x", "v"), ""},
	{"no rule for the value", forest{limited("k", "v")}, entries("k", "w"), ""},
	{"no entries", forest{limited("k", "")}, nil, ""},
	{"no rules", nil, entries("k", "v"), ""},

	{"a shallower limit is ignored", forest{limited("a", "", node("b", ""))}, entries("a", "1", "b", "2"), ""},
	{"a limit of an inner rule", forest{limited("a", "", limited("b", ""))}, entries("a", "1"), "a"},
	{"a limit below a limit", forest{limited("a", "", limited("b", ""))}, entries("a", "1", "b", "2"), "a.b"},
	{"entries remain but there are no children", forest{limited("a", "")}, entries("a", "1", "b", "2"), ""},
	{"the descriptor ends above the limit", forest{node("a", "", limited("b", ""))}, entries("a", "1"), ""},
	{
		"extra entries do not match",
		forest{node("a", "", limited("b", ""))},
		entries("a", "1", "b", "2", "c", "3"), "",
	},
	{"the order of entries matters", forest{node("a", "", limited("b", ""))}, entries("b", "2", "a", "1"), ""},
	{"case matters in values", forest{limited("k", "Foo")}, entries("k", "foo"), ""},
	{"case matters in keys", forest{limited("K", "foo")}, entries("k", "foo"), ""},
	{"case matters in wildcards", forest{limited("k", "Foo*")}, entries("k", "foobar"), ""},

	{
		"no way back from exact to wildcard",
		forest{node("a", "1", limited("x", "")), node("a", "*", limited("b", ""))},
		entries("a", "1", "b", "2"), "",
	},
	{
		"no way back from exact to key only",
		forest{node("a", "1", limited("x", "")), node("a", "", limited("b", ""))},
		entries("a", "1", "b", "2"), "",
	},
	{
		"no way back from wildcard to key only",
		forest{node("a", "1*", limited("x", "")), node("a", "", limited("b", ""))},
		entries("a", "12", "b", "2"), "",
	},
	{
		"no way back from the first wildcard to the second",
		forest{node("a", "1*", limited("x", "")), node("a", "*", limited("b", ""))},
		entries("a", "12", "b", "2"), "",
	},

	{"whitelisted: exact", forest{limited("k", ""), node("k", "v")}, entries("k", "v"), ""},
	{"whitelisted: wildcard", forest{limited("k", ""), node("k", "v*")}, entries("k", "vw"), ""},
	{"whitelisted: the others are limited", forest{limited("k", ""), node("k", "v")}, entries("k", "w"), "k"},
	{
		"whitelisted: no limit of its own",
		forest{limited("k", ""), node("k", "v", limited("x", ""))},
		entries("k", "v"), "",
	},

	{"quirk: key only foo_bar is (foo, bar)", forest{limited("foo_bar", "")}, entries("foo", "bar"), "foo_bar"},
	{"quirk: key only foo_bar is itself too", forest{limited("foo_bar", "")}, entries("foo_bar", "x"), "foo_bar"},
	{"quirk: (a, b_c) is (a_b, c)", forest{limited("a", "b_c")}, entries("a_b", "c"), "a_b_c"},
	{"quirk: (a, b_c*) is (a_b, cd)", forest{limited("a", "b_c*")}, entries("a_b", "cd"), "a_b_c*"},
	{"quirk: key k_ is (k, no value)", forest{limited("k_", "")}, entries("k", ""), "k_"},
	{
		"quirk: * matches no value before key only",
		forest{limited("k", ""), limited("k", "*")},
		entries("k", ""), "k_*",
	},
	{"quirk: * in the key", forest{limited("fo*", "")}, entries("foo", "bar"), "fo*"},
	{"quirk: * in key and value", forest{limited("f*o", "b*r")}, entries("foo", "bar"), "f*o_b*r"},
	{"quirk: * in the key crosses into the value", forest{limited("f*r", "")}, entries("foo", "bar"), "f*r"},
	{
		"quirk: the pattern as a value is exact",
		forest{limited("k", "*"), limited("k", "v*")},
		entries("k", "v*"), "k_v*",
	},
	{"quirk: the pattern as a key is key only", forest{limited("a*b", "")}, entries("a*b", "c"), "a*b"},
}

// Each row describes how Envoy's service matches one descriptor.
func TestMatchingOneDescriptor(t *testing.T) {
	for _, tt := range matchings {
		t.Run(tt.name, func(t *testing.T) {
			tree := mustTree(t, tt.rules...)
			if got := found(tree, tt.entries); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			if got := slowFound(&Domain{Name: "d", Descriptors: tt.rules}, tt.entries); got != tt.want {
				t.Errorf("the second implementation found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestUnknownDomain(t *testing.T) {
	s, err := New(Config{Domains: []Domain{{Name: "d", Descriptors: forest{limited("k", "")}}}})
	if err != nil {
		t.Fatal(err)
	}
	var m DescriptorMatches
	s.MatchDescriptors("d", []Descriptor{{Entries: entries("k", "v")}}, &m)
	if !m.DomainFound || len(m.Takes) != 1 {
		t.Errorf("known %v, %d takes; want a known domain and 1", m.DomainFound, len(m.Takes))
	}
	s.MatchDescriptors("D", []Descriptor{{Entries: entries("k", "v")}}, &m)
	if m.DomainFound || len(m.Takes) != 0 || len(m.Matches) != 1 || m.Matches[0].Limit != nil {
		t.Errorf("an unknown domain limits: %+v", m)
	}
	if got := s.DescriptorLimits("d"); len(got) != 1 || got[0].FullKey != "d.k" {
		t.Errorf("limits of d: %v", got)
	}
	if got := s.DescriptorLimits("D"); got != nil {
		t.Errorf("limits of an unknown domain: %v", got)
	}
}

// outcomes returns the outcome of each descriptor: the limit's full key, and a + if it is counted.
func outcomes(m *DescriptorMatches) string {
	var all []string
	for _, d := range m.Matches {
		switch {
		case d.Limit == nil:
			all = append(all, "-")
		case d.Replaced:
			all = append(all, d.Limit.Name+" replaced")
		case d.Limit.Unlimited:
			all = append(all, d.Limit.Name+" unlimited")
		default:
			all = append(all, fmt.Sprintf("%s %d", d.Limit.Name, d.N))
		}
	}
	return strings.Join(all, ", ")
}

// Each row describes how Envoy's service matches the descriptors of one request together.
func TestMatchingAcrossDescriptors(t *testing.T) {
	rules := forest{
		limited("a", "").with(named("A")),
		limited("b", "").with(named("B", "A")),
		limited("free", "").with(named("F", "A")).with(unlimited),
		limited("x", "").with(named("X", "Y")),
		limited("y", "").with(named("Y", "X")),
		limited("over", "").with(named("O", "F")),
		limited("nothing", "").with(named("N", "no such")),
		limited("nameless", "").with(named("", "A", "B")),
		limited("also a", "").with(named("A")),
		node("exempt", "").with(named("E", "A")),
	}
	tree := mustTree(t, rules...)
	tests := []struct {
		name string
		keys []string
		want string
	}{
		{"each by itself", []string{"a", "x", "none"}, "A 1, X 1, -"},
		{"unlimited is not counted", []string{"free"}, "F unlimited"},
		{"unlimited still replaces", []string{"free", "a"}, "F unlimited, A replaced"},
		{"unlimited is not replaced", []string{"over", "free"}, "O 1, F unlimited"},
		{"replaces in any order", []string{"a", "b"}, "A replaced, B 1"},
		{"replaces only if it matches", []string{"a", "none"}, "A 1, -"},
		{"a replaced limit still replaces", []string{"nameless", "b", "a"}, " 1, B replaced, A replaced"},
		{"a cycle drops both", []string{"x", "y"}, "X replaced, Y replaced"},
		{"replaces all of the name", []string{"a", "b", "also a", "a"}, "A replaced, B 1, A replaced, A replaced"},
		{"replaces a name that no limit has", []string{"nothing", "a"}, "N 1, A 1"},
		{"replaces of a rule without limit do nothing", []string{"exempt", "a"}, "-, A 1"},
		{"limits without a name are not replaced", []string{"nameless", "nameless"}, " 1,  1"},
		{"duplicates are each counted", []string{"a", "a"}, "A 1, A 1"},
		{"nothing asked", nil, ""},
	}
	var m DescriptorMatches // one for all, so that leftovers of a use would affect the next
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var ds []Descriptor
			for i, k := range tt.keys {
				ds = append(ds, Descriptor{Entries: entries(k, "v"), Cost: int64(i)})
			}
			tree.match(ds, &m)
			if got := outcomes(&m); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			checkTakes(t, ds, &m)
		})
	}
}

// checkTakes checks that the takes are those of the limits that count, in order.
func checkTakes(t testing.TB, ds []Descriptor, m *DescriptorMatches) {
	t.Helper()
	if len(m.Matches) != len(ds) {
		t.Fatalf("%d results for %d descriptors", len(m.Matches), len(ds))
	}
	next := 0
	for i, d := range m.Matches {
		want := 0
		if d.Limit != nil && !d.Limit.Unlimited && !d.Replaced {
			want = len(d.Limit.Rules)
		}
		if d.First != next || d.N != want {
			t.Fatalf("descriptor %d has takes %d to %d, want %d from %d on", i, d.First, d.First+d.N, want, next)
		}
		for j, take := range m.Takes[d.First : d.First+d.N] {
			if take.Rule != d.Limit.Rules[j] || take.Cost != ds[i].Cost {
				t.Fatalf("descriptor %d has a take of %s for %d", i, take.Rule.Name, take.Cost)
			}
		}
		next += want
	}
	if next != len(m.Takes) {
		t.Fatalf("%d takes, want %d", len(m.Takes), next)
	}
}

func TestSeveralLimits(t *testing.T) {
	r := limited("k", "")
	r.Limits = append(r.Limits, Limit{Limit: sluice.PerHour(100)}, Limit{Name: "burst", Limit: sluice.PerSecond(5)})
	var m DescriptorMatches
	mustTree(t, r).match([]Descriptor{{Entries: entries("k", "v"), Cost: 3}}, &m)
	var names []string
	for _, take := range m.Takes {
		names = append(names, take.Rule.Name)
		if take.Key != keyenc.Join("k", "v") || take.Cost != 3 {
			t.Errorf("a take of %d on %q", take.Cost, take.Key)
		}
	}
	if want := []string{"d/k", "d/k#2", "d/k#burst"}; !slices.Equal(names, want) {
		t.Errorf("rules %q, want %q", names, want)
	}
}

func TestDescriptorKeys(t *testing.T) {
	tree := mustTree(t,
		limited("k", ""), limited("k", "w*"),
		node("s", "files/*", limited("u", ""), limited("s", "img*").with(sharing)).with(sharing),
		limited("p", "files/*").with(sharing),
		limited("fo*", "").with(sharing),
		limited("\x00", ""),
		limited("a*b", "").with(sharing),
	)
	tests := []struct {
		name    string
		entries []Entry
		want    []string // parts
	}{
		{"key only: one count for each value", entries("k", "1"), []string{"k", "1"}},
		{"wildcard: one count for each value", entries("k", "w1"), []string{"k", "w1"}},
		{"share_threshold: the pattern", entries("p", "files/a.pdf"), []string{"p", "files/*"}},
		{"share_threshold above the limit", entries("s", "files/a", "u", "7"), []string{"s", "files/*", "u", "7"}},
		{
			"share_threshold twice for one key name", entries("s", "files/a", "s", "img1"),
			[]string{"s", "files/*", "s", "img*"},
		},
		{"share_threshold, and the value is the pattern", entries("p", "files/*"), []string{"p", "files/*"}},
		{"share_threshold with * in the key", entries("foo", "x"), []string{"foo", "fo*"}},
		{"share_threshold without effect where * matched nothing", entries("a*b", "c"), []string{"a*b", "c"}},
		{"empty value", entries("k", ""), []string{"k", ""}},
		{"NULs", entries("\x00", "\x00-"), []string{"\x00", "\x00-"}},
	}
	var m DescriptorMatches
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree.match([]Descriptor{{Entries: tt.entries, Cost: 1}}, &m)
			if len(m.Takes) != 1 {
				t.Fatalf("%d takes", len(m.Takes))
			}
			if got, want := m.Takes[0].Key, keyenc.Join(tt.want...); got != want {
				t.Errorf("key %q, want %q", got, want)
			}
		})
	}
}

// The keys of one request are all valid at the same time, however the buffer grew.
func TestManyDescriptorsInOneRequest(t *testing.T) {
	tree := mustTree(t, limited("k", ""), limited("free", "").with(unlimited))
	var ds []Descriptor
	for i := range 1000 {
		ds = append(ds, Descriptor{Entries: entries("k", fmt.Sprint(i)), Cost: 1}, Descriptor{Entries: entries("free", "x")})
	}
	var m DescriptorMatches
	tree.match(ds, &m)
	checkTakes(t, ds, &m)
	for i, take := range m.Takes {
		if want := keyenc.Join("k", fmt.Sprint(i)); take.Key != want {
			t.Fatalf("take %d has the key %q, want %q", i, take.Key, want)
		}
	}
}
