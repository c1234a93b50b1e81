package sluice_test

import (
	"context"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
)

// TestGoingOverAndBack: several instances lose a store and recover it, in any order and any number of times. Within a
// window they admit together, at the store and by local fallback:
//
//   - one instance: admitted ≤ limit
//   - n instances that all saw the remaining quota before the outage: admitted ≤ limit + n − 1
//   - n instances of which some have no recent state of the key: admitted ≤ 2 × limit
func TestGoingOverAndBack(t *testing.T) {
	rounds := 30
	if os.Getenv("SLUICE_SOAK") != "" {
		rounds = 3000
	}
	for _, tt := range []struct {
		name    string
		nodes   int
		abreast bool // all instances call the store before the outage
		more    func(limit, nodes int64) int64
	}{
		{"alone", 1, false, func(int64, int64) int64 { return 0 }},
		{"abreast", 4, true, func(_, nodes int64) int64 { return nodes - 1 }},
		{"apart", 4, false, func(limit, nodes int64) int64 { return limit + nodes - 1 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(rounds) {
				rng := rand.New(rand.NewPCG(seed, 1))
				limit := 1 + rng.Int64N(200)
				synctest.Test(t, func(t *testing.T) {
					got := degrade(t, rng, limit, tt.nodes, tt.abreast)
					if most := limit + tt.more(limit, int64(tt.nodes)); got > most {
						t.Errorf("seed %d: %d were admitted of %d, at most %d may be", seed, got, limit, most)
					}
				})
			}
		})
	}
}

// degrade returns the admitted cost.
func degrade(t *testing.T, rng *rand.Rand, limit int64, nodes int, abreast bool) (admitted int64) {
	s := newFar()
	var away atomic.Bool
	s.disturb(func(context.Context, *sluice.Take) error {
		if away.Load() {
			return errAway
		}
		return nil
	})
	algorithm := []sluice.Algorithm{sluice.FixedWindow, sluice.SlidingWindowLog, sluice.SlidingWindowCounter, sluice.TokenBucket}[rng.IntN(4)]
	rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.Limit{Count: limit, Window: 365 * 24 * time.Hour, Algorithm: algorithm}})
	all := make([]*sluice.Limiter, nodes)
	for i := range all {
		all[i] = sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}, sluice.WithInstances(func() int { return nodes })))
	}
	ask := func(l *sluice.Limiter, cost int64) {
		d := mustAllow(t, l, "k", cost)
		if d.Allowed {
			admitted += cost
		}
		synctest.Wait() // a probe may be running
	}
	// level makes all instances call the store and report their unreported usage, so that each sees the remaining quota
	// except for the 1 that each later instance takes.
	level := func() {
		for calm := 0; calm < 10; pause(300 * time.Millisecond) {
			calm++
			for _, l := range all {
				d, err := l.Peek(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				if synctest.Wait(); d.Source.Degraded() {
					calm = 0
				}
			}
		}
		for _, l := range all {
			ask(l, 1)
		}
	}
	for range 2 + rng.IntN(12) {
		goes := !away.Load() && rng.IntN(3) > 0
		if abreast && (away.Load() || goes) {
			away.Store(false)
			level()
		}
		away.Store(goes)
		for range rng.IntN(60) {
			ask(all[rng.IntN(nodes)], 1+rng.Int64N(3))
			pause(time.Duration(rng.Int64N(int64(400 * time.Millisecond))))
		}
	}
	return admitted
}

// A denied call charges nothing, whether the store or a fail mode decides.
func TestDegradedCallsAreAllOrNothing(t *testing.T) {
	s := newFar()
	s.disturb(refuses)
	wide := mustRule(t, sluice.Rule{Name: "wide", Limit: sluice.PerHour(100)})
	counted := mustRule(t, sluice.Rule{Name: "counted", Limit: sluice.PerHour(100).WithAlgorithm(sluice.FixedWindow), ChargeDenied: true})
	for name, second := range map[string]*sluice.Rule{
		"local":  mustRule(t, sluice.Rule{Name: "narrow", Limit: sluice.PerHour(3)}),
		"closed": mustRule(t, sluice.Rule{Name: "closed", Limit: sluice.PerHour(100), OnFailure: sluice.FailClosed}),
		"shadow": mustRule(t, sluice.Rule{Name: "shadow", Limit: sluice.PerHour(3), Shadow: true}),
	} {
		l := sluice.Must(sluice.NewWithRules(s, nil))
		takes := []sluice.Take{{Rule: wide, Key: "k", Cost: 1}, {Rule: second, Key: "k", Cost: 1}, {Rule: counted, Key: "k", Cost: 1}}
		out := make([]sluice.Decision, 3)
		for range 10 {
			if _, err := l.Decide(t.Context(), takes, out); err != nil {
				t.Fatal(err)
			}
		}
		want := map[string]int64{"local": 97, "closed": 100, "shadow": 90}[name]
		if out[0].Remaining != want || out[2].Remaining != 90 || !out[0].Allowed {
			t.Errorf("%s: %+v, %+v after 10 calls", name, out[0], out[2])
		}
	}
}

// The same if only one shard of a call is unavailable: the other shards are not charged.
func TestDegradedPartsChargeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		s.servers = 2
		s.disturb(func(_ context.Context, k *sluice.Take) error {
			if s.Shard(k) == 1 {
				return errAway
			}
			return nil
		})
		rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerHour(100), OnFailure: sluice.FailClosed})
		counted := mustRule(t, sluice.Rule{Name: "counted", Limit: sluice.PerHour(100), ChargeDenied: true})
		l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}))
		for range 40 {
			mustAllow(t, l, "1", 1) // "1" is on the odd shard
		}
		takes := []sluice.Take{{Rule: rule, Key: "0", Cost: 1}, {Rule: rule, Key: "1", Cost: 1}, {Rule: counted, Key: "2", Cost: 1}}
		out := make([]sluice.Decision, 3)
		for range 10 {
			if ok, err := l.Decide(t.Context(), takes, out); err != nil || ok {
				t.Fatal(ok, err)
			}
		}
		if out[0].Source != sluice.SourceDenyCache || out[1].Source != sluice.SourceFailClosed || out[2].Remaining != 90 {
			t.Errorf("%+v", out)
		}
		if d, err := l.Peek(t.Context(), "0"); err != nil || d.Remaining != 100 {
			t.Errorf("a call that was denied has charged: %+v %v", d, err)
		}
	})
}

// During local fallback, the prefetched part of a lease is not taken from the instance's share of the quota.
func TestDegradedLeasesAskForWhatTheyNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerDay(1000).WithAlgorithm(sluice.FixedWindow), Accuracy: sluice.AccuracyLease})
		l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}))
		admitted := int64(0)
		for i := range 1200 {
			if i == 100 {
				s.disturb(refuses)
			}
			admitted += mustAllow(t, l, "k", 1).Granted
			pause(time.Millisecond)
		}
		if admitted < 900 || admitted > 1000 {
			t.Errorf("%d of 1000 were admitted, most of them without the store", admitted)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
