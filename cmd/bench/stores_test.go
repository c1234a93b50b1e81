package main

import (
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
)

// TestStores measures each store in small, and checks that the limit was kept and used.
func TestStores(t *testing.T) {
	defer func(d time.Duration) { storeTime = d }(storeTime)
	storeTime = time.Second
	for _, c := range storeContenders {
		t.Run(c.name, func(t *testing.T) {
			cost, err := c.measure(sluice.SlidingWindowLog, &scenario{name: storeRun, keys: 500, ops: 800}, job{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			// 2 × the limit was offered. On a busy machine it may be less, and replies may be read late.
			if cost.P50 <= 0 || cost.P99 < cost.P50 || cost.PerSecond <= 0 || cost.Used <= 0 || cost.Used > 1.5 || cost.Peak > 1.5 {
				t.Errorf("%+v", cost)
			}
		})
	}
}
