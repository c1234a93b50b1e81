package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
	. "github.com/sluiceproject/sluice/rules"
)

// named returns a limit per hour with a name.
func named(name string, n int64) Limit { return Limit{Name: name, Limit: sluice.PerHour(n)} }

// namesFor returns the names of the limits of a user with a plan.
func namesFor(t *testing.T, s *Set, user, plan string) string {
	t.Helper()
	var m MatchResult
	if err := s.Match(req("GET /", "header:X-User", user, "header:X-Plan", plan), &m); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, take := range m.Takes {
		names = append(names, fmt.Sprintf("%s=%d", take.Rule.Name, take.EffectiveLimit().Count))
	}
	return strings.Join(names, " ")
}

// The name of a limit depends on its own name and its place in its own list, not on other lists.
func TestLimitNames(t *testing.T) {
	s := mustSet(t, Config{Rules: []Rule{{
		Name: "r", Per: per("header:X-User"), Limits: []Limit{named("", 1), named("day", 2)},
		Tiers: &Tiers{By: Ref{Name: "header:X-Plan"}, Limits: map[string][]Limit{
			"free":  {named("", 10)},
			"pro":   {named("", 20), named("day", 21), named("", 22)},
			"team":  {named("burst", 30), named("", 31)},
			"large": {named("day", 40), named("", 41), named("month", 42), named("", 43)},
		}},
		Overrides: []Override{
			{Key: []string{"ada"}, Limits: []Limit{named("own", 50), named("", 51)}},
			{Key: []string{"bob"}, Limits: []Limit{named("", 60)}},
		},
	}}})
	for _, tt := range []struct{ user, plan, want string }{
		{"eve", "", "r=1 r#day=2"},
		{"eve", "free", "r=10"},
		{"eve", "pro", "r=20 r#day=21 r#3=22"},
		{"eve", "team", "r#burst=30 r#2=31"},
		{"eve", "large", "r#day=40 r#2=41 r#month=42 r#4=43"},
		{"ada", "large", "r#own=50 r#2=51"},
		{"bob", "large", "r=60"},
	} {
		if got := namesFor(t, s, tt.user, tt.plan); got != tt.want {
			t.Errorf("%s with plan %q has %s, want %s", tt.user, tt.plan, got, tt.want)
		}
	}
	for name, want := range map[string][]int64{
		"r": {1, 10, 20}, "r#day": {2, 40, 21}, "r#2": {41, 31}, "r#3": {22}, "r#4": {43}, "r#burst": {30}, "r#month": {42}, "r#own": nil,
	} {
		rule, limits := s.LookupLimits(name, "eve")
		var got []int64
		for _, l := range limits {
			got = append(got, l.Count)
		}
		if rule == nil || rule.Name != name || !slices.Equal(got, want) {
			t.Errorf("%s: rule %v, limits %v, want %v", name, rule, got, want)
		}
	}
	buckets, err := s.TierBuckets("r", []KeyPart{{Name: "header:X-User", Value: "eve"}, {Name: "header:X-Plan", Value: "large"}})
	if err != nil || len(buckets) != 4 || buckets[0].Rule.Name != "r#day" || buckets[0].Limit.Count != 40 {
		t.Errorf("the buckets of plan large are %v: %v", buckets, err)
	}
}

// Two limits of one list have different names; those of different lists may share one.
func TestLimitNamesTwice(t *testing.T) {
	tiers := func(list ...Limit) *Tiers {
		return &Tiers{By: Ref{Name: "header:X-Plan"}, Limits: map[string][]Limit{"pro": list}}
	}
	for want, r := range map[string]Rule{
		`two limits have the name "r#a"`: {Limits: []Limit{named("", 1)}, Tiers: tiers(named("a", 2), named("a", 3))},
		`two limits have the name "r#2"`: {Limits: []Limit{named("2", 1), named("", 2)}},
		`9 limits in one list`:           {Limits: []Limit{named("", 1)}, Tiers: tiers(make([]Limit, 9)...)},
		``:                               {Limits: []Limit{named("a", 1), named("b", 1)}, Tiers: tiers(named("b", 2), named("a", 3))},
	} {
		r.Name, r.Per = "r", per("header:X-User")
		_, err := New(Config{Rules: []Rule{r}})
		if got := fmt.Sprint(err); (want == "") != (err == nil) || !strings.Contains(got, want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// Adding and removing tiers and overrides keeps the usage under the rule's own limits and under other tiers.
func TestUsageSurvivesOtherLists(t *testing.T) {
	tier := func(list ...Limit) map[string][]Limit {
		return map[string][]Limit{"pro": {named("", 200)}, "more": list}
	}
	override := func(list ...Limit) []Override { return []Override{{Key: []string{"ada"}, Limits: list}} }
	for name, own := range map[string][]Limit{
		"unnamed": {named("", 100), named("", 100)}, "named": {named("hour", 100), named("", 100)}, "second": {named("", 100), named("day", 100)},
	} {
		t.Run(name, func(t *testing.T) {
			limiter, err := sluice.NewWithRules(memstore.New(), nil)
			if err != nil {
				t.Fatal(err)
			}
			spent := int64(0)
			for i, change := range []struct {
				tiers     map[string][]Limit
				overrides []Override
			}{
				{tier(named("", 1)), nil},
				{tier(named("", 1), named("", 2), named("", 3)), nil},
				{tier(named("x", 1), named("y", 2), named("z", 3)), nil},
				{tier(named("", 1)), override(named("a", 1), named("b", 2), named("c", 3), named("", 4))},
				{tier(), override(named("a", 1))},
				{tier(named("x", 1), named("y", 2)), nil},
			} {
				s := mustSet(t, Config{Rules: []Rule{{
					Name: "r", Per: per("header:X-User"), Limits: own, Overrides: change.overrides,
					Tiers: &Tiers{By: Ref{Name: "header:X-Plan"}, Limits: change.tiers},
				}}})
				spent++
				for plan, limit := range map[string]int64{"": 100, "pro": 200} {
					var m MatchResult
					if err := s.Match(req("GET /", "header:X-User", "eve"+plan, "header:X-Plan", plan), &m); err != nil {
						t.Fatal(err)
					}
					decisions := make([]sluice.Decision, len(m.Takes))
					if _, err := limiter.Decide(t.Context(), m.Takes, decisions); err != nil {
						t.Fatal(err)
					}
					for j, d := range decisions {
						if d.Remaining != limit-spent {
							t.Errorf("change %d: plan %q has %d left of %s, want %d", i, plan, d.Remaining, m.Takes[j].Rule.Name, limit-spent)
						}
					}
				}
			}
		})
	}
}
