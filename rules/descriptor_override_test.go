package rules_test

import (
	"context"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
	. "github.com/sluiceproject/sluice/rules"
)

// A limit of the descriptor itself applies: no rule is looked up, nothing shadows or replaces it, and depth does not
// matter. An unknown domain has no limits.
func TestDescriptorsThatBringALimit(t *testing.T) {
	two := sluice.Must(sluice.PerMinute(2).WithAlgorithm(sluice.FixedWindow).Build())
	s := mustSet(t, Config{Domains: []Domain{{Name: "d", Descriptors: []DescriptorRule{
		{Key: "k", Limits: []Limit{{Limit: sluice.PerMinute(1).WithAlgorithm(sluice.FixedWindow)}}, Shadow: true, Name: "n"},
		{Key: "other", Limits: []Limit{{Limit: sluice.PerMinute(100).WithAlgorithm(sluice.FixedWindow)}}, Replaces: []string{"n"}, Name: "o"},
	}}}})
	limiter := sluice.Must(sluice.NewWithRules(memstore.New(), nil))
	var m DescriptorMatches
	ask := func(domain string, ds ...Descriptor) bool {
		t.Helper()
		s.MatchDescriptors(domain, ds, &m)
		ok, err := limiter.Decide(context.Background(), m.Takes, make([]sluice.Decision, len(m.Takes)))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	own := func(value string) Descriptor {
		return Descriptor{Entries: []Entry{{"k", value}, {"deeper", ""}}, Cost: 1, Limit: two}
	}
	replacing := Descriptor{Entries: []Entry{{"other", ""}}, Cost: 1}
	for i, want := range []bool{true, true, false} {
		if got := ask("d", own("a"), replacing); got != want {
			t.Errorf("request %d: %v", i+1, got)
		}
	}
	if l := m.Matches[0].Limit; l == nil || l.Name != "" || l.Shadow || m.Matches[0].Replaced || m.Matches[0].N != 1 {
		t.Errorf("%+v", m.Matches[0])
	}
	if key := string(m.Matches[0].Limit.AppendStatKey(nil, own("a").Entries)); key != "d.k_a.deeper" {
		t.Errorf("counted in the statistics as %q", key)
	}
	if !ask("d", own("b")) {
		t.Error("another value shares the count")
	}
	if ask("unknown", own("a")); m.DomainFound || len(m.Takes) != 0 {
		t.Error("an unknown domain limits")
	}
	if ask("d", Descriptor{Entries: []Entry{{"k", "a"}}, Cost: 1, Limit: &sluice.Limit{}}); m.Matches[0].Limit.Name != "n" {
		t.Error("an invalid limit was not ignored")
	}
}
