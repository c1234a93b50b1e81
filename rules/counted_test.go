package rules_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	. "github.com/sluiceproject/sluice/rules"
)

// The rules and limits of all takes are found by name, also those of tiers and overrides.
func TestCounted(t *testing.T) {
	limit := func(n int64) []Limit { return []Limit{{Limit: sluice.Per(n, time.Hour)}} }
	set, err := New(Config{
		Rules: []Rule{
			{Name: "several", Limits: append(limit(1), limit(2)...)},
			{
				Name: "chosen", Per: []Ref{{Name: "header:X-User"}}, Limits: limit(3),
				Tiers:     &Tiers{By: Ref{Name: "header:X-Plan"}, Limits: map[string][]Limit{"pro": limit(30), "same": limit(3)}},
				Overrides: []Override{{Key: []string{"ada"}, Limits: append(limit(300), limit(4)...)}, {Key: []string{"bob"}, Limits: []Limit{{Unlimited: true}}}},
			},
			{Name: "off", Limits: limit(1), Disabled: true},
		},
		Domains: []Domain{{Name: "d", Descriptors: []DescriptorRule{{Key: "k", Limits: limit(5)}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, key string
		counts    []int64
	}{
		{"several", "", []int64{1}},
		{"several#2", "", []int64{2}},
		{"chosen", "eve", []int64{3, 30}},
		{"chosen", "ada", []int64{300}},
		{"chosen#2", "ada", []int64{4}},
		{"chosen#2", "eve", []int64{}},
		{"chosen", "bob", []int64{}},
		{"d/k", "x", []int64{5}},
		{"off", "", nil},
		{"none", "", nil},
		{"", "", nil},
	} {
		rule, limits := set.LookupLimits(tt.name, tt.key)
		if (rule != nil) != (tt.counts != nil) || rule != nil && rule.Name != tt.name {
			t.Errorf("%q: the rule is %v", tt.name, rule)
		}
		var counts []int64
		for _, l := range limits {
			counts = append(counts, l.Count)
			if private.ParamsOf(l) == nil {
				t.Errorf("%q: a limit is not built", tt.name)
			}
		}
		if !slices.Equal(counts, tt.counts) {
			t.Errorf("%q of %q has the limits %v, want %v", tt.name, tt.key, counts, tt.counts)
		}
	}
	var m MatchResult
	if err := set.Match(req("GET /", "header:X-User", "eve", "header:X-Plan", "pro"), &m); err != nil {
		t.Fatal(err)
	}
	for i := range m.Takes {
		take := &m.Takes[i]
		if rule, limits := set.LookupLimits(take.Rule.Name, take.Key); rule != take.Rule || !slices.Contains(limits, take.Limit) {
			t.Errorf("take %d is of %v and %v, found are %v and %v", i, take.Rule, take.Limit, rule, limits)
		}
	}
}
