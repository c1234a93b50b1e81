package rules

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice"
)

// descriptors returns a domain with rules.
func descriptors(rules ...DescriptorRule) []Domain { return []Domain{{Name: "d", Descriptors: rules}} }

var domainFaults = []struct {
	name    string
	domains []Domain
	want    []string // messages, in order
}{
	{"none", descriptors(limited("k", "v")), nil},
	{"empty domain", []Domain{{}}, []string{"config file cannot have empty domain"}},
	{
		"duplicate domain",
		[]Domain{{Name: "d"}, {Name: "e"}, {Name: "d"}},
		[]string{"duplicate domain 'd' in config file"},
	},
	{"empty key", descriptors(limited("", "v")), []string{"descriptor has empty key"}},
	{"empty key below", descriptors(node("k", "", limited("", ""))), []string{"descriptor has empty key"}},
	{
		"duplicate key only", descriptors(limited("k", ""), limited("k", "")),
		[]string{"duplicate descriptor composite key 'd.k'"},
	},
	{
		"duplicate key and value", descriptors(limited("k", "v"), limited("k", "v")),
		[]string{"duplicate descriptor composite key 'd.k_v'"},
	},
	{
		"duplicate below", descriptors(node("a", "1", node("b", "", limited("k", "v"), limited("k", "v")))),
		[]string{"duplicate descriptor composite key 'd.a_1.b.k_v'"},
	},
	{
		"duplicate by composite", descriptors(limited("a", "b_c"), limited("a_b", "c")),
		[]string{"duplicate descriptor composite key 'd.a_b_c'"},
	},
	{
		"duplicate wildcard", descriptors(limited("k", "*"), limited("k", "*")),
		[]string{"duplicate descriptor composite key 'd.k_*'"},
	},
	{
		"the same at different levels",
		descriptors(limited("k", "", limited("k", "")), node("l", "", limited("k", ""))), nil,
	},
	{
		"share_threshold without *", descriptors(limited("k", "v").with(sharing), limited("k", "").with(sharing)),
		[]string{
			"share_threshold can only be used with wildcard values (containing '*'), but found key 'k_v'",
			"share_threshold can only be used with wildcard values (containing '*'), but found key 'k'",
		},
	},
	{
		"share_threshold with * anywhere",
		descriptors(limited("k", "a*b").with(sharing), limited("*k", "").with(sharing)), nil,
	},
	{
		"empty replaces", descriptors(limited("k", "").with(named("", ""))),
		[]string{"should not have an empty replaces entry"},
	},
	{
		"replaces itself", descriptors(limited("k", "").with(named("n", "m", "n"))),
		[]string{"replaces should not contain name of same descriptor"},
	},
	{
		"unlimited with limits", descriptors(limited("k", "").with(func(r *DescriptorRule) { r.Unlimited = true })),
		[]string{"should not specify rate limit unit when unlimited"},
	},
	{"unlimited and replaces itself", descriptors(limited("k", "").with(unlimited).with(named("n", "n"))), []string{
		"replaces should not contain name of same descriptor",
	}},
	{"a limit that does not build", descriptors(limited("k", "").with(func(r *DescriptorRule) {
		r.Limits = []Limit{{Limit: sluice.Limit{Count: -1, Algorithm: sluice.FixedWindow}}}
	})), []string{"limit: window: is zero", "limit: rate: -1 is negative"}},
	{"two limits of one name", descriptors(limited("k", "").with(func(r *DescriptorRule) {
		r.Limits = append(r.Limits, r.Limits[0], r.Limits[0])
		r.Limits[0].Name = "2"
	})), []string{`two limits have the name ""`}},
	{"never", descriptors(limited("k", "").with(func(r *DescriptorRule) { r.Limits[0].DenyAll = true })), []string{
		"a limit of a descriptor cannot be unlimited or deny",
	}},
	{
		"all at once, in order",
		[]Domain{
			{Name: "d", Descriptors: forest{
				node("", "", limited("k", ""), limited("k", "")),
				limited("a", "").with(named("x", "", "x")).with(sharing),
				limited("a", "", limited("", "")),
			}},
			{},
			{Name: "d", Descriptors: forest{limited("", "")}},
		},
		[]string{
			"descriptor has empty key", "duplicate descriptor composite key 'd..k'",
			"should not have an empty replaces entry", "replaces should not contain", "share_threshold can only",
			"duplicate descriptor composite key 'd.a'", "descriptor has empty key",
			"config file cannot have empty domain", "duplicate domain 'd'", "descriptor has empty key",
		},
	},
}

func TestDomainFaults(t *testing.T) {
	for _, tt := range domainFaults {
		t.Run(tt.name, func(t *testing.T) {
			trees, faults := compileDomains(&Config{Domains: tt.domains}, new(place))
			if (trees == nil) != (len(faults) > 0) {
				t.Errorf("%d trees and %d errors", len(trees), len(faults))
			}
			if len(faults) != len(tt.want) {
				t.Fatalf("%d faults, want %d: %v", len(faults), len(tt.want), faults)
			}
			for i, err := range faults {
				var e *Error
				if !errors.As(err, &e) || !strings.HasPrefix(e.Msg, tt.want[i]) {
					t.Errorf("fault %d is %v, want %s", i, err, tt.want[i])
				}
			}
		})
	}
}

func TestDomainFaultsSayWhere(t *testing.T) {
	at := Position{"envoy.yaml", 7, 3}
	rule := limited("k", "").with(sharing)
	_, faults := compileDomains(&Config{Domains: []Domain{{Name: "d", Descriptors: forest{rule}}}}, new(place))
	if want := `rule "d/k": share_threshold`; len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), want) {
		t.Errorf("a rule written in Go: %v, want %s…", faults, want)
	}
	rule.Pos = at
	_, faults = compileDomains(&Config{Domains: []Domain{{Name: "d", Descriptors: forest{rule}}}}, new(place))
	if want := `envoy.yaml:7:3: share_threshold`; len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), want) {
		t.Errorf("a rule read from a file: %v, want %s…", faults, want)
	}
	_, err := New(Config{
		Rules:   []Rule{{Pos: Position{"sluice.yaml", 1, 1}, Name: "d/k=v", Limits: perMinute(1)}},
		Domains: []Domain{{Name: "d", Descriptors: forest{limited("k", "v")}}},
	})
	if err == nil || !strings.Contains(err.Error(), `the rule at sluice.yaml:1:1 also has the name "d/k=v"`) {
		t.Errorf("a rule that is named like a descriptor: %v", err)
	}
}

func TestDescriptorLimitsAreAsConfigured(t *testing.T) {
	rule := limited("k", "v*").with(named("n", "m")).with(func(r *DescriptorRule) {
		r.Shadow, r.Quota, r.Metadata = true, true, map[string]any{"a": 1}
	})
	rules := forest{rule, limited("free", "").with(unlimited)}
	cfg := Config{ChargeDenied: true, Domains: []Domain{{Name: "d", Descriptors: rules}}}
	trees, faults := compileDomains(&cfg, new(place))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	l := trees["d"].limits[0]
	if l.Name != "n" || !l.Shadow || !l.Quota || l.Unlimited || l.Metadata["a"] != 1 || l.Source != &rules[0] ||
		!slices.Equal(l.Replaces, []string{"m"}) || l.Domain != "d" || l.FullKey != "d.k_v*" {
		t.Errorf("the limit is %+v", l)
	}
	r := l.Rules[0]
	if r.Name != "d/k=v*" || !r.Shadow || !r.ChargeDenied || r.Limit.Count != 10 ||
		r.Limit.Algorithm != sluice.FixedWindow || r.Limit.Window != time.Minute {
		t.Errorf("the rule is %+v", r)
	}
	if free := trees["d"].limits[1]; !free.Unlimited || len(free.Rules) != 0 {
		t.Errorf("the unlimited limit is %+v", free)
	}
}

// A limit of 0 always denies, and the maximum of the reference is allowed.
func TestExtremeDescriptorLimits(t *testing.T) {
	zero, most := limited("zero", ""), limited("most", "")
	zero.Limits, most.Limits = perMinute(0), perMinute(math.MaxUint32)
	if tree := mustTree(t, zero, most); len(tree.limits) != 2 {
		t.Errorf("%d limits", len(tree.limits))
	}
}

func TestDescriptorNames(t *testing.T) {
	long := strings.Repeat("ü", 200)
	tests := []struct {
		domain string
		pairs  []string
		want   string
	}{
		{"messaging", []string{"message_type", "marketing"}, "messaging/message_type=marketing"},
		{"d", []string{"k", "", "l", "v*"}, "d/k/l=v*"},
		{"d", []string{"path", "files/*"}, `d/path="files/*"`},
		{"a/b", []string{"c", ""}, `"a/b"/c`},
		{"a", []string{"b/c", ""}, `a/"b/c"`},
		{"a", []string{"b", "", "c", ""}, `a/b/c`},
		{"a", []string{"b=c", ""}, `a/"b=c"`},
		{"a", []string{"b", "#2"}, `a/b="#2"`},
		{"a", []string{"b", `"`}, `a/b="\""`},
		{"a", []string{"b", `\`}, `a/b="\\"`},
		{"a", []string{"b", "c d"}, `a/b="c d"`},
		{"a", []string{"b", "\xff"}, `a/b="\xff"`},
		{"a", []string{"b", "\ufffd"}, "a/b=\ufffd"},
		{"a", []string{"b", "übung"}, "a/b=übung"},
		{"a", []string{"b", long}, "a/b=" + strings.Repeat("ü", 109) + "~"},
	}
	for _, tt := range tests {
		got := shortName(descriptorName(tt.domain, pathOf(tt.pairs)))
		if cut, _, isCut := strings.Cut(got, "~"); isCut {
			if len(got) > sluice.MaxRuleName || len(got)-len(cut) != 33 {
				t.Errorf("%q has %d bytes", got, len(got))
			}
			got = cut + "~"
		}
		if got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

// pathOf returns rules for pairs of keys and values.
func pathOf(pairs []string) []*domainNode {
	var path []*domainNode
	for i := 0; i < len(pairs); i += 2 {
		path = append(path, &domainNode{rule: &DescriptorRule{Key: pairs[i], Value: pairs[i+1]}})
	}
	return path
}

func TestDescriptorNamesAreInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringOfN(rapid.SampledFrom([]rune(`ab/="\#~ 0`)), 0, 4, -1),
			rapid.SampledFrom([]string{strings.Repeat("a", 250), strings.Repeat("a", 251), strings.Repeat(`"`, 200)}),
			rapid.SampledFrom([]string{"\xff", "\ufffd"}),
		)
		draw := func() (string, []string) {
			var pairs []string
			for range rapid.IntRange(1, 3).Draw(t, "depth") {
				pairs = append(pairs, rapid.StringMatching("[ab/=]{1,3}").Draw(t, "key"), text.Draw(t, "value"))
			}
			return text.Draw(t, "domain"), pairs
		}
		domain1, pairs1 := draw()
		domain2, pairs2 := draw()
		name1 := shortName(descriptorName(domain1, pathOf(pairs1)))
		name2 := shortName(descriptorName(domain2, pathOf(pairs2)))
		same := domain1 == domain2 && slices.Equal(pairs1, pairs2)
		if (name1 == name2) != same {
			t.Fatalf("%q %q and %q %q are named %s and %s", domain1, pairs1, domain2, pairs2, name1, name2)
		}
		if len(name1) > sluice.MaxRuleName {
			t.Fatalf("the name has %d bytes", len(name1))
		}
	})
}

// A shortened name is not the name of another rule that was not shortened.
func TestCutDescriptorNames(t *testing.T) {
	cut := shortName(descriptorName("d", pathOf([]string{"k", strings.Repeat("v", 300)})))
	value, ok := strings.CutPrefix(cut, "d/k=")
	if !ok {
		t.Fatalf("the name is %s", cut)
	}
	if other := shortName(descriptorName("d", pathOf([]string{"k", value}))); other == cut {
		t.Errorf("two rules are named %s", cut)
	}
	if other := shortName(descriptorName("d", pathOf([]string{"k", strings.Repeat("v", 301)}))); other == cut {
		t.Errorf("two rules are named %s", cut)
	}
}

// All rules of one configuration have different names, because the store distinguishes buckets by them.
func TestDescriptorRulesHaveNamesOfTheirOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, e := drawTree(t), drawTree(t)
		e.Name = "d/a"
		trees, faults := compileDomains(&Config{Domains: []Domain{d, e}}, new(place))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		paths := make(map[string]string)
		for _, tree := range trees {
			for _, l := range tree.limits {
				for _, r := range l.Rules {
					if other, taken := paths[r.Name]; taken {
						t.Fatalf("%s and %s are both named %s", l.FullKey, other, r.Name)
					}
					paths[r.Name] = fmt.Sprint(l.FullKey)
				}
			}
		}
	})
}
