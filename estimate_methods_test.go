package sluice_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// Reservations are decided and settled by the store, which has the marks. Other takes are decided from the estimate.
func TestEventualIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range eventualLimits {
			s := newFar()
			l := eventualNodes(t, s, limit, sluice.FailClosed, 1)[0]
			here := 0
			for i := range 100 {
				if mustAllow(t, l, "k", 1).Source == sluice.SourceEventual {
					here++
				}
				r, err := l.Reserve(t.Context(), "k", 4)
				if err != nil || !r.Allowed || r.Source != sluice.SourceStore {
					t.Fatalf("%+v %v", r, err)
				}
				if err := r.Settle(t.Context(), []int64{0, 1, 9}[i%3]); err != nil {
					t.Fatal(err)
				}
				pause(7 * time.Millisecond)
			}
			want := int64(1000 - 100 - 33*10) // the last reservation is settled at 0
			pause(time.Second)
			if left := stored(t, s, l, "k"); here < 90 || left < want-1 || left > want {
				t.Errorf("%v: %d left, want %d; %d answered here", limit, left, want, here)
			}
		}
	})
}

// The only instance of a store extrapolates no usage of others, even though its own settlements have changed the store
// since the last sync, however recent that was.
func TestEventualSettlesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 10_000
		for range 10 { // so that syncs happen at all points between two settlements
			pause(time.Hour - time.Duration(time.Now().UnixNano())%time.Hour)
			l := eventualNodes(t, newFar(), sluice.PerHour(limit).WithAlgorithm(sluice.FixedWindow), sluice.FailClosed, 1)[0]
			for left := int64(limit - 1); left > limit-2400; left -= 6 {
				if d := mustAllow(t, l, "k", 1); d.Remaining < left || d.Remaining > left+6 {
					t.Fatalf("%+v, want %d remaining", d, left)
				}
				if err := sluice.Must(l.Reserve(t.Context(), "k", 4)).Settle(t.Context(), 5); err != nil {
					t.Fatal(err)
				}
				pause(500 * time.Microsecond)
			}
		}
	})
}

// Wait, AllowUpTo and costs work as at the store.
func TestEventualVerbs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		l := eventualNodes(t, s, sluice.PerSecond(10).WithBurst(5), sluice.FailClosed, 1)[0]
		mustAllow(t, l, "k", 1)
		if d, err := l.AllowUpTo(t.Context(), "k", 1, 100); err != nil || d.Granted != 4 || d.Source != sluice.SourceEventual {
			t.Errorf("%+v %v", d, err)
		}
		if d := mustAllow(t, l, "k", 1); d.Allowed || d.RetryAfter != 100*time.Millisecond {
			t.Errorf("%+v", d)
		}
		if d := mustAllow(t, l, "k", 6); !d.ExceedsLimit {
			t.Errorf("%+v", d)
		}
		start := time.Now()
		for range 10 {
			if err := l.Wait(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took < 900*time.Millisecond || took > 1100*time.Millisecond {
			t.Errorf("ten at ten a second took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := l.Wait(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if _, err := l.Decide(t.Context(), []sluice.Take{{Rule: l.Rules()[0], Key: "k", Cost: -1}}, make([]sluice.Decision, 1)); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%v", err)
		}
	})
}

// Resets and blocks take effect in their own instance at once, and in others after a sync.
func TestEventualResetAndBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range eventualLimits {
			s := newFar()
			all := eventualNodes(t, s, limit, sluice.FailClosed, 2)
			both := func(want bool, why string) {
				t.Helper()
				for i, l := range all {
					if d := mustAllow(t, l, "k", 1); d.Allowed != want {
						t.Errorf("%v: %s: process %d: %+v", limit, why, i, d)
					}
				}
			}
			both(true, "fresh")
			mustAllow(t, all[0], "k", 900)
			both(true, "spent most")
			if err := all[0].Block(t.Context(), "k", 3*time.Second); err != nil {
				t.Fatal(err)
			}
			if d := mustAllow(t, all[0], "k", 1); d.Allowed {
				t.Errorf("%v: blocked: %+v", limit, d)
			}
			for range 28 {
				pause(100 * time.Millisecond)
				mustPeek(t, all[1], "k")
			}
			both(false, "blocked")
			pause(50 * time.Millisecond)
			mustPeek(t, all[1], "k")
			pause(350 * time.Millisecond)
			both(true, "the block has ended")
			if err := all[1].Reset(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			pause(250 * time.Millisecond)
			for i, l := range all {
				if d := mustAllow(t, l, "k", 1); d.Remaining < 990 {
					t.Errorf("%v: reset: process %d: %+v", limit, i, d)
				}
			}
		}
	})
}

// In a call with rules of all accuracies, a denial changes nothing except for ChargeDenied rules.
func TestEventualAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		l := eventualNodes(t, s, sluice.PerHour(1000).WithAlgorithm(sluice.FixedWindow), sluice.FailClosed, 1)[0]
		hour := func(name string, n int64, a sluice.Accuracy, charge bool) *sluice.Rule {
			return mustRule(t, sluice.Rule{Name: name, Limit: sluice.PerHour(n).WithAlgorithm(sluice.FixedWindow), Accuracy: a, ChargeDenied: charge})
		}
		for _, denies := range []sluice.Accuracy{sluice.AccuracyExact, sluice.AccuracyLease, sluice.AccuracyEventual} {
			key := []string{"exact", "lease", "eventual"}[denies]
			var takes []sluice.Take
			for _, r := range []*sluice.Rule{
				l.Rules()[0], hour("few"+key, 150, denies, false), hour("leased", 1000, sluice.AccuracyLease, false),
				hour("exact", 1000, sluice.AccuracyExact, false), hour("all", 1000, sluice.AccuracyEventual, true), hour("all2", 1000, sluice.AccuracyExact, true),
			} {
				takes = append(takes, sluice.Take{Rule: r, Key: key, Cost: 1})
			}
			out := make([]sluice.Decision, len(takes))
			allowed := 0
			for range 300 {
				ok, err := l.Decide(t.Context(), takes, out)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					allowed++
				}
				pause(time.Millisecond)
			}
			pause(3 * time.Second)
			synctest.Wait()
			if allowed != 150 {
				t.Errorf("%s: %d allowed", key, allowed)
			}
			for i := range takes {
				takes[i].Cost = 0
			}
			if err := s.Store.Apply(t.Context(), takes, out); err != nil {
				t.Fatal(err)
			}
			for i, want := range []int64{850, 0, 850, 850, 700, 700} {
				if out[i].Remaining != want {
					t.Errorf("%s: %s has %d left, want %d", key, takes[i].Rule.Name, out[i].Remaining, want)
				}
			}
		}
	})
}

// A store in the process makes all decisions itself.
func TestEventualInOneProcess(t *testing.T) {
	rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerHour(5), Accuracy: sluice.AccuracyEventual})
	l := sluice.Must(sluice.NewWithRules(memstore.New(), []*sluice.Rule{rule}))
	for i := range 10 {
		if d := mustAllow(t, l, "k", 1); d.Allowed != (i < 5) || d.Source != sluice.SourceStore {
			t.Errorf("%+v", d)
		}
	}
	for _, limit := range []sluice.Limit{
		sluice.PerSecond(5).WithAlgorithm(sluice.SlidingWindowLog), sluice.PerSecond(5).WithAlgorithm(sluice.LeakyQueue),
		{Count: 60, Window: time.Minute, Algorithm: sluice.SlidingWindowCounter, SubWindows: 6},
		{Count: 60, Window: time.Minute, Refill: sluice.RefillInterval},
		sluice.PerSecond(5).WithAlgorithm(sluice.FixedWindow).WithSoftExcess(1, time.Second),
	} {
		if _, err := sluice.NewRule(sluice.Rule{Name: "r", Limit: limit, Accuracy: sluice.AccuracyEventual}); err == nil {
			t.Errorf("%v can be eventual", limit)
		}
	}
}

// A decision from the estimate allocates nothing.
func TestEventualAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range eventualLimits {
			l := eventualNodes(t, newFar(), limit, sluice.FailClosed, 1)[0]
			mustAllow(t, l, "k", 1)
			if n := testing.AllocsPerRun(500, func() { mustAllow(t, l, "k", 1) }); n != 0 {
				t.Errorf("%v: %v allocations", limit, n)
			}
		}
	})
}

// For any traffic, all instances together stay within the bound, and the store counts all that they admitted.
func TestEventualBound(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		limit := rapid.SampledFrom([]sluice.Limit{
			sluice.PerSecond(100).WithAlgorithm(sluice.FixedWindow), sluice.PerSecond(100).WithBurst(50), sluice.PerMinute(600).WithAlgorithm(sluice.FixedWindow),
		}).Draw(r, "limit")
		n := rapid.IntRange(1, 5).Draw(r, "processes")
		seed := rapid.Uint64().Draw(r, "seed")
		delay := time.Duration(rapid.IntRange(0, 4_900).Draw(r, "delay")) * time.Microsecond // of a take; a sync has two
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			s.disturb(after(delay))
			all := eventualNodes(t, s, limit, sluice.FailClosed, n)
			checkBound(t, r, all, limit, seed)
		})
	})
}

// checkBound offers bursts and pauses, and checks each window or, for a bucket, each interval.
func checkBound(t *testing.T, r *rapid.T, all []*sluice.Limiter, limit sluice.Limit, seed uint64) {
	toNextSecond()
	random := rand.New(rand.NewPCG(seed, 1))
	staleness := sluice.MaxStaleness(sluice.DefaultStoreTimeout)
	var asked, admitted []time.Duration
	for i := 0; i < 1000; i++ {
		asked = append(asked, time.Duration(time.Now().UnixNano()))
		if mustAllow(t, all[random.IntN(len(all))], "k", 1).Allowed {
			admitted = append(admitted, time.Duration(time.Now().UnixNano()))
		}
		switch {
		case random.IntN(100) == 0:
			pause(time.Duration(random.Int64N(int64(time.Second))))
		case random.IntN(2) == 0:
			pause(time.Duration(random.Int64N(int64(4 * time.Millisecond))))
		}
	}
	offered := 0 // maximum in any interval of MaxStaleness
	for from, to := 0, 0; to < len(asked); to++ {
		for asked[to]-asked[from] > staleness {
			from++
		}
		offered = max(offered, to-from+1)
	}
	got := &load{at: admitted}
	if limit.Algorithm == sluice.TokenBucket {
		if worst := got.burst(limit.Rate()); worst > float64(limit.Burst)+float64(offered) {
			r.Fatalf("a burst of %.0f, of %d and %d offered in %v", worst, limit.Burst, offered, staleness)
		}
		return
	}
	for w, n := range got.windows(limit.Window) {
		if n > limit.Count+int64(offered) {
			r.Fatalf("window %v admitted %d, of %d and %d offered in %v", w, n, limit.Count, offered, staleness)
		}
	}
}
