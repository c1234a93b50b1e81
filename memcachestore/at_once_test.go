package memcachestore_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
)

// TestTwoServersAtOnce is the worked example of two limiters that share a store: at 3 both count, and the counter is 5
// afterwards; at 9 of 10 one is admitted, and 10 are recorded.
func TestTwoServersAtOnce(t *testing.T) {
	server := memcachetest.Start(t)
	stores := []*memcachestore.Store{openStore(t, memcachestore.Config{Addrs: []string{server.Addr}}), openStore(t, memcachestore.Config{Addrs: []string{server.Addr}})}
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.Per(10, 30*24*time.Hour).With(sluice.FixedWindow).WithAlign(sluice.AlignFirstHit)}))
	for i := range 50 {
		take := sluice.Take{Rule: rule, Key: fmt.Sprint("k", i), Cost: 1}
		atOnce := func() (granted int64) {
			var all sync.WaitGroup
			got := make([]int64, len(stores))
			for j, s := range stores {
				all.Go(func() { got[j] = apply(t, s, take)[0].Granted })
			}
			all.Wait()
			return got[0] + got[1]
		}
		for _, c := range []struct{ before, granted, after int64 }{{3, 2, 5}, {4, 1, 10}} {
			for range c.before {
				apply(t, stores[i%2], take)
			}
			granted := atOnce()
			peek := take
			peek.Cost = 0
			if after := 10 - apply(t, stores[0], peek)[0].Remaining; granted != c.granted || after != c.after {
				t.Fatalf("%d are admitted at once and %d recorded, want %d and %d", granted, after, c.granted, c.after)
			}
		}
	}
}
