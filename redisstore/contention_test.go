package redisstore_test

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

// TestSharedByStores checks that independent stores together admit exactly the limit. Each call is over a limit of its
// store and a limit that all share, and the script is flushed repeatedly.
func TestSharedByStores(t *testing.T) {
	server := redistest.Shared(t)
	const stores, callers, limit = 3, 64, 1000
	requests := int64(10_000)
	if os.Getenv("SLUICE_SOAK") != "" {
		requests = 1_000_000
	}
	for _, a := range []sluice.Algorithm{
		sluice.TokenBucket, sluice.FixedWindow, sluice.SlidingWindowCounter, sluice.SlidingWindowLog,
	} {
		t.Run(a.String(), func(t *testing.T) {
			day := sluice.PerDay(limit).WithAlgorithm(a) // long enough that no quota is replenished during the test
			if a == sluice.FixedWindow {
				day.Align = sluice.AlignFirstRequest // nor if the test runs at midnight
			}
			shared := sluice.Must(sluice.NewRule(sluice.Rule{Name: "shared", Limit: day}))
			own := sluice.Must(sluice.NewRule(sluice.Rule{Name: "own", Limit: day}))
			name := prefix()
			var admitted, asked atomic.Int64
			var all sync.WaitGroup
			for i := range stores {
				store := open(t, redisstore.Config{URL: server.URL(), KeyPrefix: name})
				for range callers {
					all.Go(func() {
						takes := []sluice.Take{
							{Rule: shared, Key: "all", Cost: 1},
							{Rule: own, Key: string(rune('a' + i)), Cost: 1},
						}
						out := make([]sluice.Decision, len(takes))
						for n := asked.Add(1); n <= requests; n = asked.Add(1) {
							if n%1000 == 0 {
								do(t, server, "SCRIPT", "FLUSH")
							}
							if err := store.Apply(context.Background(), takes, out); err != nil {
								t.Error(err)
								return
							}
							if out[0].Allowed && out[1].Allowed {
								admitted.Add(1)
							}
						}
					})
				}
			}
			all.Wait()
			// A token bucket of 1000 per day is refilled by one token every 86 s.
			if n := admitted.Load(); n < limit || n > limit+2 || a != sluice.TokenBucket && n != limit {
				t.Errorf("admitted %d, want %d", n, limit)
			}
			store := open(t, redisstore.Config{URL: server.URL(), KeyPrefix: name})
			spent := int64(0)
			for i := range stores {
				d := apply(t, store, sluice.Take{Rule: own, Key: string(rune('a' + i))})[0]
				spent += limit - d.Remaining
			}
			if n := admitted.Load(); spent > n || a != sluice.TokenBucket && spent != n {
				t.Errorf("admitted %d, but the limits of the stores count %d", n, spent)
			}
		})
	}
}
