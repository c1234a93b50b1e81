package rules_test

import (
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// Concurrency limits apply only if the caller reports the end of requests; otherwise they are skipped.
func TestFlight(t *testing.T) {
	set := sluice.Must(rules.New(rules.Config{Rules: []rules.Rule{{
		Name: "both", Cost: rules.Cost{Default: 5}, ChargeDenied: true,
		Limits:    []rules.Limit{{Limit: sluice.PerHour(10)}, {Limit: sluice.Concurrent(2)}},
		Per:       []rules.Ref{{Name: "header:X-User"}},
		Overrides: []rules.Override{{Key: []string{"ada"}, Limits: []rules.Limit{{Limit: sluice.Concurrent(1)}}}},
	}}}))
	for _, c := range []struct {
		user   string
		flight bool
		want   []string
	}{
		{"bob", true, []string{"both 10/h cost 5 charges denied", "both#2 2 concurrent cost 1"}},
		{"bob", false, []string{"both 10/h cost 5 charges denied"}},
		{"ada", true, []string{"both 1 concurrent cost 1 charges denied"}},
		{"ada", false, nil},
	} {
		m := rules.MatchResult{Concurrency: c.flight}
		if err := set.Match(req("GET /", "header:X-User", c.user), &m); err != nil || m.Outcome != rules.MatchLimited {
			t.Fatal(m.Outcome, err)
		}
		var got []string
		for _, take := range m.Takes {
			text := take.Rule.Name + " " + take.EffectiveLimit().String() + " cost " + string(rune('0'+take.Cost))
			if take.Rule.ChargeDenied {
				text += " charges denied"
			}
			got = append(got, text)
		}
		if len(got) != len(c.want) {
			t.Fatalf("%s: %q, want %q", c.user, got, c.want)
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %q, want %q", c.user, got, c.want)
			}
		}
	}
}
