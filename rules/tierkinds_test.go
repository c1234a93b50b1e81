package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	. "github.com/sluiceproject/sluice/rules"
)

// Tiers whose limits are of another kind than the rule's do not share its buckets, which is a warning.
func TestWarnsOfTiersOfOtherKinds(t *testing.T) {
	counter := sluice.PerMinute(100).WithAlgorithm(sluice.SlidingWindowCounter)
	parts := counter
	parts.SubWindows = 4
	interval := sluice.PerMinute(100)
	interval.Refill = sluice.RefillInterval
	for name, tt := range map[string]struct {
		own, tier sluice.Limit
		want      bool
	}{
		"same":        {sluice.PerMinute(10), sluice.PerMinute(100), false},
		"leaky":       {sluice.PerMinute(10), sluice.PerMinute(100).WithAlgorithm(sluice.LeakyBucket), false},
		"window":      {sluice.PerMinute(100).WithAlgorithm(sluice.FixedWindow), sluice.PerHour(100).WithAlgorithm(sluice.FixedWindow), false},
		"refill":      {sluice.PerMinute(10), interval, true},
		"sub-windows": {counter, parts, true},
		"algorithm":   {sluice.PerMinute(10), counter, true},
	} {
		s := mustSet(t, Config{Rules: []Rule{{
			Name: "r", Per: per("header:X-User"), Limits: []Limit{{Limit: tt.own}},
			Tiers: &Tiers{By: Ref{Name: "claim:plan"}, Limits: map[string][]Limit{"pro": {{Limit: tt.tier}}}},
		}}})
		got := false
		for _, w := range s.Warnings() {
			got = got || strings.Contains(w.Msg, `counts tier "pro" separately`)
		}
		if got != tt.want {
			t.Errorf("%s: warned %v, want %v: %v", name, got, tt.want, s.Warnings())
		}
	}
}

// A tier without names does not share the bucket of a limit with a name, which is a warning.
func TestWarnsOfTiersWithoutNames(t *testing.T) {
	window := func(name string, n int64) Limit {
		return Limit{Name: name, Limit: sluice.PerDay(n).WithAlgorithm(sluice.FixedWindow)}
	}
	for name, tt := range map[string]struct {
		own, tier []Limit
		want      bool
	}{
		"neither":       {[]Limit{named("", 1)}, []Limit{named("", 2)}, false},
		"own":           {[]Limit{named("x", 1)}, []Limit{named("", 2)}, true},
		"both":          {[]Limit{named("x", 1)}, []Limit{named("x", 2)}, false},
		"on purpose":    {[]Limit{named("", 1)}, []Limit{named("y", 2)}, false},
		"longer":        {[]Limit{named("", 1)}, []Limit{named("", 2), named("", 3)}, false},
		"another place": {[]Limit{named("", 1), window("day", 5)}, []Limit{window("day", 50)}, false},
		"other kind":    {[]Limit{named("", 1), window("day", 5)}, []Limit{named("day", 50)}, true},
	} {
		s := mustSet(t, Config{Rules: []Rule{{
			Name: "r", Per: per("header:X-User"), Limits: tt.own,
			Tiers: &Tiers{By: Ref{Name: "claim:plan"}, Limits: map[string][]Limit{"pro": tt.tier}},
		}}})
		got := strings.Contains(fmt.Sprint(s.Warnings()), `counts tier "pro" separately`)
		if got != tt.want {
			t.Errorf("%s: warned %v, want %v: %v", name, got, tt.want, s.Warnings())
		}
	}
}
