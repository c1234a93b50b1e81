package sluice_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// BenchmarkAllow measures decisions in memory with one rule and with three, at a remote store, from leases, and from
// estimates.
func BenchmarkAllow(b *testing.B) {
	const plenty = 1 << 30
	rule := func(i int, a sluice.Accuracy) *sluice.Rule {
		limit := sluice.PerHour(plenty).WithAlgorithm(sluice.FixedWindow)
		return sluice.Must(sluice.NewRule(sluice.Rule{Name: fmt.Sprint("r", i), Limit: limit, Accuracy: a}))
	}
	for _, bb := range []struct {
		name     string
		store    sluice.Store
		rules    int
		accuracy sluice.Accuracy
	}{
		{"memory", memstore.New(), 1, sluice.AccuracyExact},
		{"memory three", memstore.New(), 3, sluice.AccuracyExact},
		{"remote", quick{memstore.New()}, 1, sluice.AccuracyExact},
		{"remote three", quick{memstore.New()}, 3, sluice.AccuracyExact},
		{"lease", quick{memstore.New()}, 1, sluice.AccuracyLease},
		{"lease three", quick{memstore.New()}, 3, sluice.AccuracyLease},
		{"eventual", quick{memstore.New()}, 1, sluice.AccuracyEventual},
		{"eventual three", quick{memstore.New()}, 3, sluice.AccuracyEventual},
	} {
		b.Run(bb.name, func(b *testing.B) {
			rules := make([]*sluice.Rule, bb.rules)
			for i := range rules {
				rules[i] = rule(i, bb.accuracy)
			}
			l := sluice.Must(sluice.NewWithRules(bb.store, rules))
			ctx := context.Background()
			defer l.Close(ctx)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Allow(ctx, "user"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// quick is a remote store that replies at once.
type quick struct{ *memstore.Store }

func (quick) Shards() int            { return 1 }
func (quick) Shard(*sluice.Take) int { return 0 }
