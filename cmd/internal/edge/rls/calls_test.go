package rls_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/internal/keyenc"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
)

// counted is a store that counts its calls.
type counted struct {
	sluice.Store
	calls int
}

func (c *counted) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	c.calls++
	return c.Store.Apply(ctx, takes, out)
}

// For any number of descriptors the store is called once, and at most three times if they are decided independently.
func TestFewCalls(t *testing.T) {
	directory := rulesIn(t, `
  - {key: r, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: q, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: none, rate_limit: {unit: year, requests_per_unit: 0}}
`)
	many := func(k, suffix string) string {
		var all []string
		for i := range 30 {
			all = append(all, k+"="+strings.Repeat("x", i)+suffix)
		}
		return strings.Join(all, " | ")
	}
	tests := []struct {
		name, ask string
		options   rls.Options
		want      int
	}{
		{"regular", many("r", ""), rls.Options{}, 1},
		{"no limits", many("free", ""), rls.Options{}, 0},
		{"quota", many("q", "") + " | r=1", rls.Options{}, 1},
		{"quota, all over", many("q", " hits:2") + " | r=1", rls.Options{}, 2},
		{"quota and a veto", many("q", "") + " | none=1", rls.Options{}, 1},
		{"peeks", many("r", " hits:0"), rls.Options{}, 1},
		{"peeks and quota", many("r", " hits:0") + " | q=1 | r=1", rls.Options{}, 2},
		{"a peek that denies", "none=1 hits:0 | " + many("r", ""), rls.Options{}, 2},
		{"refunds", many("r", " give:1") + " | r=1", rls.Options{NegativeHits: true}, 2},
		{"shadow", many("none", "") + " | r=1", rls.Options{Shadow: true}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store := &counted{Store: memstore.New()}
			got := ask(t, decider(t, store, tt.options, rulefile.Options{}, directory), tt.ask)
			if strings.Count(got, "|") < 29 || store.calls != tt.want {
				t.Errorf("the store is called %d times, want %d; the response is %s", store.calls, tt.want, got)
			}
		})
	}
}

// A descriptor that is over one of its limits is charged to none, even if it is independent of the others.
func TestApartIsAllOrNothing(t *testing.T) {
	store := memstore.New()
	d := decider(t, store, rls.Options{}, rulefile.Options{}, rulesIn(t, `
  - {key: q, quota_mode: true, rate_limit: [{unit: year, requests_per_unit: 10}, {unit: month, requests_per_unit: 1}]}
  - {key: p, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 10}}
`))
	for range 3 {
		ask(t, d, "q=1 | p=1")
	}
	limit := sluice.Per(10, 365*24*time.Hour).WithAlgorithm(sluice.FixedWindow)
	for name, want := range map[string]int64{"q": 9, "p": 7} {
		rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "d/" + name, Limit: limit}))
		out := make([]sluice.Decision, 1)
		if err := store.Apply(t.Context(), []sluice.Take{{Rule: rule, Key: keyenc.Join(name, "1")}}, out); err != nil {
			t.Fatal(err)
		}
		if out[0].Remaining != want {
			t.Errorf("%d remain of %s, want %d", out[0].Remaining, name, want)
		}
	}
}
