package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
)

// TwoAtOnce checks two stores that share one server for lost updates, with the limit 10. If both take 1 concurrently at
// a usage of 3, both are allowed and the usage is 5 afterwards. If both take 1 at a usage of 9, one is allowed and the
// usage is 10.
func TwoAtOnce(t *testing.T, stores [2]sluice.Store) {
	limit := sluice.Per(10, 30*24*time.Hour).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest)
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: limit}))
	ask := func(s sluice.Store, take sluice.Take) sluice.Decision {
		var out [1]sluice.Decision
		if err := s.Apply(t.Context(), []sluice.Take{take}, out[:]); err != nil {
			t.Error(err)
		}
		return out[0]
	}
	for i := range 50 {
		take := sluice.Take{Rule: rule, Key: fmt.Sprint("k", i), Cost: 1}
		for _, c := range []struct{ before, granted, after int64 }{{3, 2, 5}, {4, 1, 10}} {
			for range c.before {
				ask(stores[i%2], take)
			}
			var both sync.WaitGroup
			var granted [2]int64
			for j, s := range stores {
				both.Go(func() { granted[j] = ask(s, take).Granted })
			}
			both.Wait()
			peek := take
			peek.Cost = 0
			if after := 10 - ask(stores[0], peek).Remaining; granted[0]+granted[1] != c.granted || after != c.after {
				t.Fatalf("two concurrent takes: admitted %d and usage %d, want %d and %d", granted[0]+granted[1], after, c.granted, c.after)
			}
		}
	}
}
