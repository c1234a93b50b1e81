package sluice_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

func ExampleLimiter_Blocked() {
	ctx := context.Background()
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerMinute(100)))
	_ = limiter.Block(ctx, "mallory", time.Hour)
	left, _ := limiter.Blocked(ctx, "mallory")
	fmt.Println(left.Round(time.Minute))
	// Output: 1h0m0s
}

// Operators identify buckets by rule and key, whichever limiter counts them.
func ExampleLimiter_BlockBuckets() {
	ctx := context.Background()
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "api", Limit: sluice.PerMinute(100)}))
	limiter := sluice.Must(sluice.NewWithRules(memstore.New(), nil))
	bucket := sluice.Bucket{Rule: rule, Key: "mallory"}
	_ = limiter.BlockBuckets(ctx, time.Hour, bucket)
	left, _ := limiter.BlockedBucket(ctx, bucket)
	fmt.Println(left.Round(time.Minute))
	_ = limiter.ResetBuckets(ctx, bucket)
	left, _ = limiter.BlockedBucket(ctx, bucket)
	fmt.Println(left)
	// Output:
	// 1h0m0s
	// 0s
}

// Bucket identifies the bucket of a take.
func ExampleTake_Bucket() {
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "api", Limit: sluice.PerMinute(100)}))
	gold := sluice.Must(sluice.PerMinute(1000).Build())
	take := sluice.Take{Rule: rule, Limit: gold, Key: "ada", Cost: 1}
	bucket := take.Bucket()
	fmt.Println(bucket.Rule.Name, bucket.Key, bucket.EffectiveLimit())
	// Output: api ada 1000/min
}

// Package memstore keeps hashes of keys and, if configured, also the keys.
func ExampleLimiter_ListBuckets() {
	ctx := context.Background()
	store := sluice.Must(memstore.Open(memstore.Config{KeepKeys: true}))
	limiter := sluice.Must(sluice.New(store, "api", sluice.PerHour(100)))
	sluice.Must(limiter.AllowN(ctx, "ada", 30))
	page, err := limiter.ListBuckets(ctx, sluice.ListOptions{PageSize: 50})
	for _, b := range page.Buckets {
		fmt.Println(b.Rule.Name, b.Key, b.Decision.Remaining)
	}
	fmt.Println(err)
	// Output:
	// api ada 70
	// <nil>
}

// A rule that does harm is suspended until it is fixed.
func ExampleLimiter_Suspend() {
	ctx := context.Background()
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerMinute(1)))
	limiter.Suspend("api")
	for range 2 {
		d, _ := limiter.Allow(ctx, "ada")
		fmt.Println(d.Allowed, d.Source, limiter.SuspendedRules())
	}
	limiter.Resume("api")
	d, _ := limiter.Allow(ctx, "ada")
	fmt.Println(d.Allowed, d.Source, limiter.SuspendedRules())
	// Output:
	// true suspended [api]
	// true suspended [api]
	// true store []
}

// A rule in shadow mode whose attribute is missing in a request denies nothing, and is reported.
func ExampleLimiter_ReportShadowed() {
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "per-user", Limit: sluice.PerMinute(1), Shadow: true}))
	limiter := sluice.Must(sluice.NewWithRules(memstore.New(), nil, sluice.WithEvents(sluice.Events{
		OnDenial: func(_ context.Context, t sluice.Take, d sluice.Decision) {
			fmt.Println(t.Rule.Name, d.Allowed, d.ShadowDenied)
		},
	})))
	limiter.ReportShadowed(context.Background(), []sluice.Take{{Rule: rule}})
	// Output: per-user true true
}

// ResetRules resets all buckets of a rule, page by page. Package memstore has one page and does not count the buckets.
func ExampleLimiter_ResetRules() {
	ctx := context.Background()
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerMinute(1)))
	for range 2 {
		if _, err := limiter.Allow(ctx, "ada"); err != nil {
			panic(err)
		}
	}
	for o := (sluice.ResetOptions{Rules: limiter.Rules()}); ; {
		page, err := limiter.ResetRules(ctx, o)
		if err != nil {
			panic(err)
		}
		if o.PageToken = page.NextPageToken; o.PageToken == "" {
			break
		}
	}
	d, err := limiter.Allow(ctx, "ada")
	fmt.Println(d.Allowed, err)
	// Output: true <nil>
}
