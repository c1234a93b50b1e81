package rules

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var explanations = []struct {
	name    string
	entries []Entry
	want    string
}{
	{"exact", entries("message_type", "marketing"), `
		entry 1, message_type=marketing: exact message_type=marketing
		  wildcard message_type=m* matches too, but an exact rule comes first
		  wildcard message_type=*g matches too, but an exact rule comes first
		  the rule message_type for any value comes last
		limited by messaging/message_type=marketing: 10/min fixed_window`},
	{"wildcard", entries("message_type", "mailing"), `
		entry 1, message_type=mailing: wildcard message_type=m*
		  no rule is exactly message_type=mailing
		  wildcard message_type=*g matches too, but comes later
		  the rule message_type for any value comes last
		limited by messaging/message_type=m*: 10/min fixed_window`},
	{"key only", entries("message_type", "letter"), `
		entry 1, message_type=letter: key only message_type
		  no rule is exactly message_type=letter
		  wildcard message_type=m* does not match
		  wildcard message_type=*g does not match
		limited by messaging/message_type: 10/min fixed_window`},
	{"whitelisted", entries("message_type", "test"), `
		entry 1, message_type=test: exact message_type=test at envoy.yaml:9:5
		  the rule message_type for any value comes last
		whitelisted: messaging/message_type=test has no rate_limit`},
	{"whitelisted by an inner rule", entries("a", "1"), `
		entry 1, a=1: key only a
		  no rule is exactly a=1
		whitelisted: messaging/a has no rate_limit of its own, only rules below it`},
	{"no rule for the key", entries("message_type", "marketing", "x", "1"), `
		entry 1, message_type=marketing: exact message_type=marketing
		  wildcard message_type=m* matches too, but an exact rule comes first
		  wildcard message_type=*g matches too, but an exact rule comes first
		  the rule message_type for any value comes last
		entry 2, x=1: no rule
		  no rule is exactly x=1
		entry 2: no rule for key "x" below messaging/message_type=marketing: not limited`},
	{"no rule for the value", entries("a", "1", "b", "2"), `
		entry 1, a=1: key only a
		  no rule is exactly a=1
		entry 2, b=2: no rule
		  no rule is exactly b=2
		entry 2: no rule for b=2, and none for any value of "b", below messaging/a: not limited`},
	{"too deep", entries("message_type", "test", "to", "me"), `
		entry 1, message_type=test: exact message_type=test at envoy.yaml:9:5
		  the rule message_type for any value comes last
		the rule messaging/message_type=test ends here but the descriptor goes on with entry 2, ` +
		`to=me: not limited`},
	{"unlimited", entries("free", ""), `
		entry 1, free="": key only free
		  no rule is exactly free=""
		messaging/free is unlimited: not counted`},
	{"shadow", entries("shadow", "1"), `
		entry 1, shadow=1: key only shadow
		  no rule is exactly shadow=1
		limited by messaging/shadow: 10/min fixed_window, in shadow mode`},
	{"no entries", nil, `
		the descriptor has no entries: not limited`},
}

func TestExplainDescriptors(t *testing.T) {
	exempt := node("message_type", "test")
	exempt.Pos = Position{"envoy.yaml", 9, 5}
	shadow := limited("shadow", "")
	shadow.Shadow = true
	s, err := New(Config{Domains: []Domain{{Name: "messaging", Descriptors: forest{
		limited("message_type", "marketing", limited("to", "", limited("x", ""))),
		exempt,
		limited("message_type", "m*"),
		limited("message_type", "*g"),
		limited("message_type", "").with(named("any")),
		limited("to", "*").with(named("", "any")),
		limited("free", "").with(unlimited),
		node("a", "", limited("b", "1")),
		shadow,
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range explanations {
		t.Run(tt.name, func(t *testing.T) {
			x := s.ExplainDescriptors("messaging", []Descriptor{{Entries: tt.entries}})
			want := strings.ReplaceAll(strings.TrimPrefix(tt.want, "\n"), "\t\t", "")
			if got := strings.Join(x[0].Lines(), "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}

	two := []Descriptor{{Entries: entries("message_type", "x")}, {Entries: entries("to", "me")}}
	x := s.ExplainDescriptors("messaging", two)
	if want := "replaced by messaging/to=*: not counted"; x[0].Outcome != want || !x[0].Replaced || x[1].Replaced {
		t.Errorf("got %+v, want %s", x, want)
	}
	x = s.ExplainDescriptors("x", []Descriptor{{Entries: entries("to", "me")}})
	if want := `there is no domain "x": not limited`; x[0].Outcome != want {
		t.Errorf("got %+v, want %s", x, want)
	}
}

func TestExplainDescriptorsOfManyWildcardsIsShort(t *testing.T) {
	var rules []DescriptorRule
	for i := range 1000 {
		rules = append(rules, limited("k", fmt.Sprintf("%d*", i)))
	}
	x := explainDescriptors(mustTree(t, rules...), "d", []Descriptor{{Entries: entries("k", "x")}})
	lines := x[0].Lines()
	if want := "  990 more wildcards do not match"; len(lines) != 14 || lines[12] != want {
		t.Errorf("%d lines, of which one should be %s:\n%s", len(lines), want, strings.Join(lines, "\n"))
	}
}

// An explanation names the limit that is found, for any tree.
func TestExplanationsAreTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawTree(t)
		trees, faults := compileDomains(&Config{Domains: []Domain{d}}, new(place))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		e := drawEntries(t, &d)
		x := explainDescriptors(trees["d"], "d", []Descriptor{{Entries: e}})[0]
		steps := slowFind(&d, e)
		for i, s := range steps {
			if got := x.Steps[i]; got.Rule == nil || got.By != s.by || got.Rule.label() != s.rule.label() {
				t.Fatalf("%q: step %d is %+v", e, i, got)
			}
		}
		isLimited := x.Limit != nil && !x.Limit.Unlimited && !x.Replaced
		if said := strings.HasPrefix(x.Outcome, "limited by "); said != isLimited || len(x.Lines()) == 0 {
			t.Fatalf("%q has the limit %+v, and it is said: %s", e, x.Limit, x.Outcome)
		}
	})
}
