package sluice_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/memstore"
)

// A rule whose numbers change is a new limiter on the same store. Usage is kept, and no caller waits longer than the
// new limit requires.
func TestChangedNumbers(t *testing.T) {
	month := sluice.Per(5, 30*24*time.Hour)
	for _, c := range []struct {
		from, to sluice.Limit
		spent    int64
		left     int64
		full     time.Duration // time until the bucket is full after the change
	}{
		{sluice.PerMinute(10), sluice.PerDay(10), 10, 0, 24 * time.Hour},
		{sluice.PerDay(10), sluice.PerMinute(10), 10, 0, time.Minute},
		{month, sluice.PerSecond(5), 5, 0, time.Second},
		{sluice.PerSecond(5), month, 5, 0, 30 * 24 * time.Hour},
		{sluice.PerMinute(10), sluice.PerMinute(100), 5, 50, 30 * time.Second},
		{sluice.PerMinute(100), sluice.PerMinute(10), 55, 4, 33 * time.Second},
		{sluice.PerDay(10).WithAlgorithm(sluice.LeakyBucket), sluice.PerMinute(10), 10, 0, time.Minute},
		{
			sluice.Limit{Count: 10, Window: time.Hour, Refill: sluice.RefillInterval},
			sluice.Limit{Count: 10, Window: 24 * time.Hour, Refill: sluice.RefillInterval},
			10, 0, 24 * time.Hour,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			before := sluice.Must(sluice.New(store, "r", c.from))
			mustAllow(t, before, "k", c.spent)
			changed := sluice.Must(sluice.New(store, "r", c.to))
			if d := mustAllow(t, changed, "k", c.left+1); d.Allowed || d.Remaining != c.left || d.ResetAfter != c.full {
				t.Errorf("%v to %v: %+v", c.from, c.to, d)
			}
			pause(c.full)
			if left := remaining(t, changed, "k"); left != c.to.Count {
				t.Errorf("%v to %v: %d left when it is full", c.from, c.to, left)
			}
		})
	}
}

// A client whose plan is upgraded or downgraded keeps its remaining share of the quota.
func TestChangedPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plans := map[string]*sluice.Limit{
			"free": sluice.Must(sluice.PerDay(10).Build()), "pro": sluice.Must(sluice.PerHour(1000).Build()),
		}
		plan := "free"
		l := sluice.Must(sluice.New(memstore.New(), "r", sluice.PerDay(1),
			sluice.WithLimitFor(func(context.Context, string) *sluice.Limit { return plans[plan] })))
		mustAllow(t, l, "k", 10)
		plan = "pro"
		if d := mustAllow(t, l, "k", 1); d.Allowed || d.ResetAfter != time.Hour {
			t.Errorf("upgraded: %+v", d)
		}
		pause(15 * time.Minute)
		if d := mustAllow(t, l, "k", 50); d.Remaining != 200 {
			t.Errorf("a quarter of an hour later: %+v", d)
		}
		plan = "free"
		if left := remaining(t, l, "k"); left != 2 {
			t.Errorf("of the plan before %d are left", left)
		}
	})
}

// Reservations from before a change are refunded after it.
func TestChangedReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		before := sluice.Must(sluice.New(store, "r", sluice.PerMinute(10)))
		r, err := before.Reserve(background, "k", 10)
		if err != nil {
			t.Fatal(err)
		}
		changed := sluice.Must(sluice.New(store, "r", sluice.PerDay(20)))
		if left := remaining(t, changed, "k"); left != 0 {
			t.Errorf("%d left", left)
		}
		if err := r.Settle(background, 5); err != nil {
			t.Fatal(err)
		}
		if left := remaining(t, changed, "k"); left != 10 {
			t.Errorf("%d left after half of the reservation was refunded", left)
		}
	})
}

// Tightening a limit grants nothing: a bucket that is not larger than before never has more remaining than before.
func TestTightenedHandsOutNothing(t *testing.T) {
	windows := []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(name string) sluice.Limit {
			l := sluice.Per(rapid.Int64Range(1, 200).Draw(rt, name), rapid.SampledFrom(windows).Draw(rt, name+" window"))
			l.Burst = rapid.Int64Range(1, 200).Draw(rt, name+" burst")
			return l
		}
		from, to := draw("from"), draw("to")
		to.Burst = min(to.Burst, from.Burst)
		if private.ParamsOf(sluice.Must(from.Build())).Shape() == private.ParamsOf(sluice.Must(to.Build())).Shape() {
			return // 1 pair in 98 has equal shapes, whose change is not noticed
		}
		now := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
		store := sluice.Must(memstore.Open(memstore.Config{MaxBytes: 1 << 20, Now: func() time.Time { return now }}))
		before := sluice.Must(sluice.New(store, "r", from))
		mustAllow(t, before, "k", rapid.Int64Range(1, from.Burst).Draw(rt, "spent"))
		now = now.Add(time.Duration(rapid.Int64Range(0, int64(from.Window)).Draw(rt, "pause")))
		left := remaining(t, before, "k")
		if got := remaining(t, sluice.Must(sluice.New(store, "r", to)), "k"); got > left {
			rt.Fatalf("%v to %v: %d left, %d before", from, to, got, left)
		}
	})
}
