package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

func ExampleLimiter_Allow() {
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerMinute(2)))
	for range 3 {
		d, err := limiter.Allow(context.Background(), "ada")
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}

func ExampleLimiter_AllowUpTo() {
	limiter := sluice.Must(sluice.New(memstore.New(), "rows", sluice.PerHour(100)))
	first, _ := limiter.AllowUpTo(context.Background(), "export", 1, 70)
	second, _ := limiter.AllowUpTo(context.Background(), "export", 1, 70)
	fmt.Println(first.Granted, second.Granted)
	// Output: 70 30
}

func ExampleLimiter_Wait() {
	limiter := sluice.Must(sluice.New(memstore.New(), "calls", sluice.PerHour(1)))
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	fmt.Println(limiter.Wait(ctx, "upstream"))
	err := limiter.Wait(ctx, "upstream") // would exceed the deadline of ctx, so it returns at once
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// <nil>
	// true
}

func ExampleLimiter_Reserve() {
	ctx := context.Background()
	limiter := sluice.Must(sluice.New(memstore.New(), "tokens", sluice.PerDay(1000)))
	reservation, _ := limiter.Reserve(ctx, "ada", 400)
	_ = reservation.Settle(ctx, 150) // refunds 250
	d, _ := limiter.Peek(ctx, "ada")
	fmt.Println(d.Remaining)
	// Output: 850
}

func ExampleLimiter_Block() {
	ctx := context.Background()
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerMinute(100)))
	_ = limiter.Block(ctx, "mallory", time.Hour)
	d, _ := limiter.Allow(ctx, "mallory")
	_ = limiter.Reset(ctx, "mallory")
	e, _ := limiter.Allow(ctx, "mallory")
	fmt.Println(d.Allowed, e.Allowed)
	// Output: false true
}

func ExampleLimiter_Escalate() {
	limiter := sluice.Must(sluice.New(memstore.New(), "logins", sluice.PerMinute(5)))
	ladder := sluice.Escalation{Blocks: []time.Duration{time.Minute, time.Hour}, ForgetAfter: 24 * time.Hour}
	for range 3 {
		d, _ := limiter.Escalate(context.Background(), "mallory", ladder)
		fmt.Println(d)
	}
	// Output:
	// 1m0s
	// 1h0m0s
	// 1h0m0s
}

func ExampleParseLimit() {
	limit, err := sluice.ParseLimit("300/3h")
	fmt.Println(limit.Count, limit.Window, err)
	_, err = sluice.ParseLimit("300 per hour")
	fmt.Println(err)
	// Output:
	// 300 3h0m0s <nil>
	// sluice: limit "300 per hour": there is no slash: write COUNT/UNIT, such as "10/s", "300/3h" or "5/week"
}
