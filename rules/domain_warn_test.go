package rules

import (
	"fmt"
	"strings"
	"testing"
)

var domainWarningTests = []struct {
	name  string
	rules []DescriptorRule
	want  []string // rule and start of the message
}{
	{"nothing to say", forest{limited("k", "a*"), limited("k", "*"), limited("l", ""), limited("l", "x")}, nil},
	{"a limit of an inner rule is fine", forest{limited("k", "", limited("l", ""))}, nil},
	{"an inner rule without one is fine", forest{node("k", "", limited("l", ""))}, nil},

	{"a broader wildcard before", forest{limited("k", "a*"), limited("k", "ab*")}, []string{
		"d/k=ab*: never matches: the earlier rule k=a* matches",
	}},
	{
		"a broader wildcard of another form",
		forest{limited("k", "*b*"), limited("k", "a*b*c"), limited("k", "x*b")},
		[]string{"d/k=a*b*c: never matches", "d/k=x*b: never matches"},
	},
	{
		"a broader wildcard in the key",
		forest{limited("*", ""), limited("k", "a*")},
		[]string{"d/k=a*: never matches"},
	},
	{
		"overlapping wildcards are fine",
		forest{limited("k", "a*"), limited("k", "*b"), limited("k", "a*b*c")},
		[]string{"d/k=a*b*c: never matches: the earlier rule k=a* matches"},
	},
	{"a broader wildcard after is fine", forest{limited("k", "ab*"), limited("k", "a*")}, nil},
	{"an exact rule after a wildcard is fine", forest{limited("k", "*"), limited("k", "a")}, nil},
	{"of another level is fine", forest{limited("k", "*", limited("k", "a*"))}, nil},
	{"below", forest{node("a", "", limited("k", "*"), limited("k", "b*"))}, []string{"d/a/k=b*: never matches"}},

	{"key only hidden by *", forest{limited("k", ""), limited("k", "*")}, []string{
		`d/k: never matches: the rule k=* matches every value of "k"`,
	}},
	{
		"key only hidden by a wildcard in the key",
		forest{limited("k*", ""), limited("key", "")},
		[]string{"d/key: never matches"},
	},
	{
		"key only next to other wildcards is fine",
		forest{limited("k", ""), limited("k", "a*"), limited("l", "*")},
		nil,
	},

	{"no effect", forest{node("k", "v"), limited("l", "")}, []string{"d/k=v: has no effect"}},
	{"no effect: key only", forest{node("k", ""), limited("k", "v")}, []string{"d/k: has no effect"}},
	{
		"no effect: wildcard",
		forest{limited("k", "a*"), node("k", "b*"), limited("l", "")},
		[]string{"d/k=b*: has no effect"},
	},
	{"exempt from key only", forest{node("k", "v"), limited("k", "")}, nil},
	{"exempt from a wildcard", forest{limited("k", "v*"), node("k", "vw")}, nil},
	{"exempt from a later wildcard", forest{node("k", "vw*"), limited("k", "v*")}, nil},
	{"wildcard exempt from key only", forest{node("k", "vw*"), limited("k", "")}, nil},
	{"exempt by the quirk of composites", forest{node("k_v", ""), limited("k", "")}, nil},
	{"unlimited has an effect", forest{limited("k", "v").with(unlimited)}, nil},

	{
		"replaces nothing",
		forest{limited("k", "").with(named("a", "b", "c")), limited("l", "").with(named("c"))},
		[]string{`d/k: replaces "b", but no rate_limit of the domain has this name`},
	},
	{"replaces the name of a rule without limit", forest{
		limited("k", "").with(named("a", "b")), node("l", "", limited("x", "")).with(named("b")),
	}, []string{`d/k: replaces "b"`}},
	{
		"replaces an unlimited limit",
		forest{limited("k", "").with(named("a", "b")), limited("l", "").with(named("b")).with(unlimited)},
		[]string{`d/k: replaces "b", which is unlimited`},
	},
	{
		"replaces a name below is fine",
		forest{limited("k", "").with(named("a", "b")), node("l", "", limited("m", "").with(named("b")))},
		nil,
	},
}

func TestDomainWarnings(t *testing.T) {
	for _, tt := range domainWarningTests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := &Config{Domains: []Domain{{Name: "d", Descriptors: tt.rules}}}
			trees, faults := compileDomains(cfg, new(place))
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			got := domainWarnings(cfg, trees)
			if len(got) != len(tt.want) {
				t.Fatalf("%d warnings, want %d: %v", len(got), len(tt.want), got)
			}
			for i, w := range got {
				if text := w.Rule + ": " + w.Msg; !strings.HasPrefix(text, tt.want[i]) {
					t.Errorf("%s\nwant %s…", text, tt.want[i])
				}
			}
		})
	}
}

// A rule reported as never matching is found by none of many texts, and one reported as without effect can be removed.
func TestDomainWarningsAreTrue(t *testing.T) {
	const n = 4
	texts := textsOf("ab*", n-1)
	for i := range 200 {
		rules := make([]DescriptorRule, 0, n)
		seen := make(map[string]bool)
		for j := range n {
			r := limited("k", texts[(i*7919+j*104_729)%len(texts)])
			if (i+j)%3 == 0 {
				r.Limits = nil
			}
			if c := slowComposite(&r); !seen[c] {
				seen[c] = true
				rules = append(rules, r)
			}
		}
		cfg := &Config{Domains: []Domain{{Name: "d", Descriptors: rules}}}
		trees, faults := compileDomains(cfg, new(place))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		for _, w := range domainWarnings(cfg, trees) {
			checkWarning(t, rules, w)
		}
	}
}

func checkWarning(t *testing.T, rules []DescriptorRule, w Warning) {
	t.Helper()
	var rest []DescriptorRule
	for _, r := range rules {
		if "d/"+r.label() != w.Rule {
			rest = append(rest, r)
		}
	}
	if len(rest) != len(rules)-1 {
		t.Fatalf("no rule is named %s", w.Rule)
	}
	for _, value := range textsOf("abc", 4) {
		e := entries("k", value)
		with, without := slowFound(&Domain{Descriptors: rules}, e), slowFound(&Domain{Descriptors: rest}, e)
		if with != without {
			t.Fatalf("%s: %s: but %q finds %q with it and %q without", w.Rule, w.Msg, value, with, without)
		}
	}
}

// Rules are not compared with each other, which would take minutes for so many.
func TestWarningsForManyRules(t *testing.T) {
	var rules []DescriptorRule
	for i := range 20_000 {
		rules = append(rules, limited("k", fmt.Sprintf("/t%d/*", i)))
	}
	rules = append(rules, limited("k", "/t77/x*"))
	cfg := &Config{Domains: []Domain{{Name: "d", Descriptors: rules}}}
	trees, faults := compileDomains(cfg, new(place))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if got := domainWarnings(cfg, trees); len(got) != 1 || got[0].Rule != `d/k="/t77/x*"` {
		t.Errorf("%d warnings: %v", len(got), got)
	}
}
