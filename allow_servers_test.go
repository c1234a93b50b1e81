package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// TestAllowOnServers: limiters with several rules decide and report the same, whether the store is remote or not.
func TestAllowOnServers(t *testing.T) {
	rules := []*sluice.Rule{
		mustRule(t, sluice.Rule{Name: "shadow", Limit: sluice.PerHour(2), Shadow: true}),
		mustRule(t, sluice.Rule{Name: "charges", Limit: sluice.PerHour(4), ChargeDenied: true}),
		mustRule(t, sluice.Rule{Name: "plain", Limit: sluice.PerHour(3)}),
	}
	run := func(remote bool) (told []string) {
		now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		store := sluice.Must(memstore.Open(memstore.Config{Now: func() time.Time { return now }}))
		var s sluice.Store = store
		if remote {
			s = quick{store}
		}
		l := sluice.Must(sluice.NewWithRules(s, rules, sluice.WithEvents(sluice.Events{
			OnDecision: func(_ context.Context, take sluice.Take, d sluice.Decision) {
				d.Source = 0 // a denial from the deny cache is equal otherwise
				told = append(told, fmt.Sprintf("%s %s %d %+v", take.Rule.Name, take.Key, take.Cost, d))
			},
		})))
		defer l.Close(t.Context())
		for i := range 8 {
			for _, key := range []string{"a", "b"} {
				d, err := l.AllowN(t.Context(), key, int64(i%2+1))
				told = append(told, fmt.Sprintf("%v %d %v", d.Allowed, d.Remaining, err))
			}
		}
		_, err := l.AllowN(t.Context(), "a", sluice.MaxCost+1)
		return append(told, fmt.Sprint(errors.Is(err, sluice.ErrInvalid)))
	}
	here, there := run(false), run(true)
	for i := range min(len(here), len(there)) {
		if here[i] != there[i] {
			t.Fatalf("%d: %s\nfrom servers: %s", i, here[i], there[i])
		}
	}
	if len(here) != len(there) {
		t.Errorf("%d lines, from servers %d", len(here), len(there))
	}
}
