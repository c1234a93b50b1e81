package memcachestore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
)

// TestEventual: two limiters with separate stores use local estimates for many keys on two servers. After they are
// closed, the usage at the servers equals the admitted number, even beyond the limit.
func TestEventual(t *testing.T) {
	addrs := []string{memcachetest.Start(t).Addr, memcachetest.Start(t).Addr}
	for _, limit := range []sluice.Limit{
		sluice.PerCalendar(10, sluice.CalendarMonth, nil), sluice.Per(10, 24*time.Hour).WithAlgorithm(sluice.SlidingWindowCounter), sluice.Per(10, 240*time.Hour),
	} {
		const keys = 200
		rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: limit.Algorithm.String(), Limit: limit, Accuracy: sluice.AccuracyEventual}))
		var store sluice.Store
		var all []*sluice.Limiter
		for range 2 {
			s := openStore(t, memcachestore.Config{Addrs: addrs})
			store, all = s, append(all, sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}, sluice.WithStoreTimeout(patient))))
		}
		admitted, here := make([]int64, keys), 0
		for k := range admitted {
			for range 20 {
				for _, l := range all {
					d, err := l.Allow(t.Context(), fmt.Sprint("key", k))
					if err != nil || d.Source.Degraded() {
						t.Fatalf("%+v %v", d, err)
					}
					if d.Source == sluice.SourceEventual {
						here++
					}
					admitted[k] += d.Granted
				}
			}
		}
		for _, l := range all {
			if err := l.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		more := limit
		more.Count, more.Burst = 1000, 0
		if limit.Algorithm == sluice.TokenBucket { // the usage follows from the time when it is full
			more = limit
		}
		take, out := sluice.Take{Rule: rule, Limit: sluice.Must(more.Build())}, make([]sluice.Decision, 1)
		for k, n := range admitted {
			take.Key = fmt.Sprint("key", k)
			err := store.Apply(t.Context(), []sluice.Take{take}, out)
			heard := 1000 - out[0].Remaining
			if limit.Algorithm == sluice.TokenBucket {
				each := limit.Window / time.Duration(limit.Count)
				heard = int64((out[0].ResetAfter + each - 1) / each)
			}
			if err != nil || heard != n {
				t.Errorf("%v: the server counts %d of %s, want the %d admitted (%v)", limit, heard, take.Key, n, err)
			}
		}
		if here < 1000 {
			t.Errorf("%v: %d of 8000 were decided locally", limit, here)
		}
	}
}
