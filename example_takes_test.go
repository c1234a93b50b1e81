package sluice_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

func ExampleLimiter_AllowN() {
	limiter := sluice.Must(sluice.New(memstore.New(), "bytes", sluice.PerMinute(1000)))
	d, _ := limiter.AllowN(context.Background(), "ada", 800)
	e, _ := limiter.AllowN(context.Background(), "ada", 800)
	fmt.Println(d.Allowed, e.Allowed, e.Remaining)
	// Output: true false 200
}

func ExampleLimiter_WaitN() {
	limiter := sluice.Must(sluice.New(memstore.New(), "batch", sluice.PerMinute(10)))
	err := limiter.WaitN(context.Background(), "ada", 11)
	fmt.Println(errors.Is(err, sluice.ErrExceedsLimit))
	// Output: true
}

// At most two requests in flight.
func ExampleLimiter_Acquire() {
	ctx := context.Background()
	limiter := sluice.Must(sluice.New(memstore.New(), "exports", sluice.Concurrent(2)))
	defer limiter.Close(ctx)
	first, _, _ := limiter.Acquire(ctx, "ada")
	second, _, _ := limiter.Acquire(ctx, "ada")
	_, d, _ := limiter.Acquire(ctx, "ada")
	fmt.Println(d.Allowed)
	first.Release(ctx)
	third, d, _ := limiter.Acquire(ctx, "ada")
	fmt.Println(d.Allowed)
	second.Release(ctx)
	third.Release(ctx)
	// Output:
	// false
	// true
}

// Takes under any rules and keys are decided together, all or nothing.
func ExampleLimiter_Decide() {
	ctx := context.Background()
	user := sluice.Must(sluice.NewRule(sluice.Rule{Name: "user", Limit: sluice.PerMinute(10)}))
	tenant := sluice.Must(sluice.NewRule(sluice.Rule{Name: "tenant", Limit: sluice.PerMinute(3)}))
	limiter := sluice.Must(sluice.NewWithRules(memstore.New(), nil))
	takes := []sluice.Take{{Rule: user, Key: "ada", Cost: 2}, {Rule: tenant, Key: "acme", Cost: 2}}
	out := make([]sluice.Decision, len(takes))
	for range 2 {
		allowed, err := limiter.Decide(ctx, takes, out)
		i := sluice.MostRestrictive(out)
		fmt.Println(allowed, takes[i].Rule.Name, out[i].Remaining, "of", takes[i].EffectiveLimit(), err)
	}
	// Output:
	// true tenant 1 of 3/min <nil>
	// false tenant 1 of 3/min <nil>
}

// One process charges, and another settles with the take, its decision and the actual cost.
func ExampleTake_Settlement() {
	ctx := context.Background()
	limiter := sluice.Must(sluice.New(memstore.New(), "tokens", sluice.PerDay(1000)))
	takes := limiter.Takes(ctx, nil, "ada", 400)
	takes[0].Settles = true
	out := make([]sluice.Decision, 1)
	_, _ = limiter.Decide(ctx, takes, out)
	if settlement, ok := takes[0].Settlement(&out[0], 150); ok {
		_ = limiter.Settle(ctx, []sluice.Take{settlement})
	}
	d, _ := limiter.Peek(ctx, "ada")
	fmt.Println(d.Remaining)
	// Output: 850
}

// A request is charged its estimate and holds a permit while it runs.
func ExampleLimiter_ReserveTakes() {
	ctx := context.Background()
	limiter := sluice.Must(sluice.NewWithRules(memstore.New(), []*sluice.Rule{
		sluice.Must(sluice.NewRule(sluice.Rule{Name: "tokens", Limit: sluice.PerDay(1000)})),
		sluice.Must(sluice.NewRule(sluice.Rule{Name: "in-flight", Limit: sluice.Concurrent(1)})),
	}))
	defer limiter.Close(ctx)
	takes := limiter.Takes(ctx, nil, "ada", 1)
	takes[0].Cost, takes[0].Settles = 400, true
	first, _ := limiter.ReserveTakes(ctx, takes)
	second, _ := limiter.ReserveTakes(ctx, takes)
	for i, d := range second.Decisions() {
		fmt.Println(takes[i].Rule.Name, d.Allowed)
	}
	_ = first.SettleEach(ctx, []int64{150, 1}) // releases the permit
	_ = second.Retry(ctx)
	fmt.Println(second.Allowed, second.Permit() != nil)
	_ = second.Cancel(ctx)
	d, _ := limiter.Peek(ctx, "ada")
	fmt.Println(d.Remaining)
	// Output:
	// tokens true
	// in-flight false
	// true true
	// 850
}
