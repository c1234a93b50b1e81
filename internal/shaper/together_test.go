package shaper_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/internal/shaper"
)

// TestTogether: callers that arrive together before a bucket are served as the bucket permits: the burst at once, then one per
// interval, and only those that need not wait longer than maxWait. The store takes a moment for each decision.
func TestTogether(t *testing.T) {
	for seed := range uint64(400) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 21))
			burst, places, callers := 1+rng.IntN(6), rng.IntN(5), 1+rng.IntN(20)
			const latency = interval / 100
			start := time.Now()
			full := start // when the bucket is full again
			decide := func() time.Duration {
				<-time.After(latency)
				now := time.Now()
				if now.After(full) {
					full = now
				}
				if retry := full.Sub(now) - time.Duration(burst-1)*interval; retry > 0 {
					return retry
				}
				full = full.Add(interval)
				return 0
			}
			c := new(crowd)
			shape := shaper.Shape{Interval: interval, Burst: time.Duration(burst) * interval}
			for range callers {
				if rng.IntN(3) == 0 {
					<-time.After(time.Duration(rng.IntN(int(latency))))
				}
				c.send(context.Background(), shape, 1, time.Duration(places)*interval, decide)
			}
			c.group.Wait()
			if want := min(callers, burst+places); len(c.departed) != want {
				t.Errorf("seed %d: %d of %d released, want %d: burst %d, maximum wait %d intervals", seed, len(c.departed), callers, want, burst, places)
			}
			if n := len(c.departed) + len(c.refused) + c.late; n != callers {
				t.Errorf("seed %d: %d of %d callers have an outcome", seed, n, callers)
			}
			for i, d := range c.departed {
				want := time.Duration(max(0, i+1-burst)) * interval
				if at := d.left.Sub(start); at < want || at > want+interval/2 {
					t.Errorf("seed %d: release %d at %v, want %v", seed, i, at, want)
				}
			}
			if !slices.IsSortedFunc(c.departed, func(a, b departure) int { return a.came.Compare(b.came) }) {
				t.Errorf("seed %d: not in the order of arrival", seed)
			}
		})
	}
}
