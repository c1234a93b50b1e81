package sluice_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// Functions create limits, and methods refine them.
func ExampleLimit() {
	utc := time.UTC
	for _, limit := range []sluice.Limit{
		sluice.PerSecond(10).WithBurst(20),
		sluice.PerMinute(100).WithAlgorithm(sluice.SlidingWindowCounter),
		sluice.PerHour(10).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest).WithSoftExcess(2, time.Minute),
		sluice.PerDay(1000),
		sluice.PerWeek(5),
		sluice.Per(300, 3*time.Hour),
		sluice.Every(time.Minute),
		sluice.PerCalendar(10_000, sluice.CalendarMonth, utc),
		sluice.Concurrent(5).WithPermitTTL(time.Minute),
	} {
		fmt.Printf("%v: at most %d at once\n", limit, limit.Max())
	}
	fmt.Println(sluice.PerMinute(30).Rate(), "a second")
	// Output:
	// 10/s burst 20: at most 20 at once
	// 100/min sliding_window_counter: at most 100 at once
	// 10/h fixed_window soft +2 for 1m0s: at most 12 at once
	// 1000/day: at most 1000 at once
	// 5/week: at most 5 at once
	// 300/3h: at most 300 at once
	// 1/min: at most 1 at once
	// 10000/calendar month in UTC fixed_window: at most 10000 at once
	// 5 concurrent ttl 1min: at most 5 at once
	// 0.5 a second
}

// A new key starts with 2 of 10 requests; its bucket fills from the first request on.
func ExampleLimit_WithInitial() {
	now := time.Date(2026, time.March, 2, 1, 0, 0, 0, time.UTC)
	store := sluice.Must(memstore.Open(memstore.Config{Now: func() time.Time { return now }}))
	limiter := sluice.Must(sluice.New(store, "api", sluice.PerMinute(10).WithInitial(2)))
	ctx := context.Background()
	for range 3 {
		d := sluice.Must(limiter.Allow(ctx, "new-client"))
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter)
	}
	now = now.Add(time.Minute)
	d := sluice.Must(limiter.Allow(ctx, "new-client"))
	fmt.Println(d.Allowed, d.Remaining)
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 6s
	// true 9
}

// Build validates a limit once that is then chosen for each call.
func ExampleLimit_Build() {
	_, err := sluice.PerSecond(0).WithBurst(-1).Build()
	fmt.Println(err)
	// Output:
	// sluice: limit: Count: is zero: use a count of at least 1, or WithAlgorithm(FixedWindow) to deny everything
	// sluice: limit: Burst: -1 is negative: use at least 1, or leave it out for a burst of Count
}

func ExampleNew() {
	_, err := sluice.New(memstore.New(), "api", sluice.PerMinute(0))
	fmt.Println(err)
	// Output: rule "api": sluice: limit: Count: is zero: use a count of at least 1, or WithAlgorithm(FixedWindow) to deny everything
}

// A limit of 10 per second and 1,000 per day.
func ExampleNewWithRules() {
	limiter, err := sluice.NewWithRules(memstore.New(), []*sluice.Rule{
		sluice.Must(sluice.NewRule(sluice.Rule{Name: "burst", Limit: sluice.PerSecond(10)})),
		sluice.Must(sluice.NewRule(sluice.Rule{Name: "day", Limit: sluice.PerDay(1000), OnFailure: sluice.FailClosed})),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	d, _ := limiter.Allow(context.Background(), "ada")
	fmt.Println(d.Allowed, d.Remaining, "of", d.Limit, "by", len(limiter.Rules()), "rules")
	d, _ = limiter.AllowN(context.Background(), "ada", 10)
	fmt.Println(d.Allowed, "by", d.Rule.Name, d.Rule.Limit)
	// Output:
	// true 9 of 10 by 2 rules
	// false by burst 10/s
}

// All options of a limiter.
func ExampleOption() {
	ctx := context.Background()
	gold := sluice.Must(sluice.PerMinute(5).Build())
	limiter, err := sluice.New(memstore.New(), "api", sluice.PerMinute(1),
		sluice.WithLimitFor(func(_ context.Context, key string) *sluice.Limit {
			if key == "gold" {
				return gold
			}
			return nil
		}),
		sluice.WithEvents(sluice.Events{OnDenial: func(_ context.Context, t sluice.Take, _ sluice.Decision) {
			fmt.Println("denied:", t.Key)
		}}),
		sluice.WithStoreTimeout(20*time.Millisecond),  // timeout of a RemoteStore
		sluice.WithInstances(func() int { return 3 }), // number of instances sharing the store
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close(ctx)
	for range 2 {
		_, _ = limiter.Allow(ctx, "gold")
		_, _ = limiter.Allow(ctx, "ada")
	}
	// Output: denied: ada
}

func ExampleMaxStaleness() {
	fmt.Println(sluice.MaxStaleness(sluice.DefaultStoreTimeout))
	// Output: 250ms
}

// Degraded reports whether the store did not make the decision.
func ExampleSource_Degraded() {
	for _, s := range []sluice.Source{sluice.SourceStore, sluice.SourceLease, sluice.SourceFailLocal} {
		fmt.Println(s, s.Degraded())
	}
	// Output:
	// store false
	// lease false
	// local true
}

// A rule is a named limit with a fail mode for an unavailable store.
func ExampleNewRule() {
	_, err := sluice.NewRule(sluice.Rule{Limit: sluice.PerMinute(10), OnFailure: sluice.FailOpen})
	fmt.Println(err)
	// Output: sluice: rule: Name is empty: use a name such as "api" or "logins-per-ip"
}

// An invalid limit in code is a bug.
func ExampleMust() {
	limit := sluice.Must(sluice.ParseLimit("10/s"))
	fmt.Println(limit)
	// Output: 10/s
}

func ExampleMostRestrictive() {
	decisions := []sluice.Decision{
		{Allowed: true, Limit: 100, Remaining: 90},
		{Allowed: true, Limit: 1000, Remaining: 10},
	}
	fmt.Println(sluice.MostRestrictive(decisions))
	decisions[0].Allowed, decisions[0].RetryAfter = false, time.Second
	fmt.Println(sluice.MostRestrictive(decisions))
	// Output:
	// 1
	// 0
}
