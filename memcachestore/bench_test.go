package memcachestore_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
)

// BenchmarkTake measures decisions of many callers: on many keys, on one key, and on one that is exhausted.
func BenchmarkTake(b *testing.B) {
	for _, bb := range []struct {
		name  string
		keys  int
		limit int64
		most  int64 // maximum admitted
	}{
		{"keys=10k", 10_000, 1 << 31, 1 << 31},
		{"keys=1", 1, 1 << 31, 1 << 31},
		{"keys=1/denied", 1, 1, 1},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s := openStore(b, memcachestore.Config{Addrs: []string{memcachetest.Start(b).Addr}})
			rule := newRule("r", window(bb.limit))
			var granted, next atomic.Int64
			b.SetParallelism(16)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					key := fmt.Sprint(next.Add(1) % int64(bb.keys))
					granted.Add(apply(b, s, sluice.Take{Rule: rule, Key: key, Cost: 1})[0].Granted)
				}
			})
			if n := granted.Load(); n != min(int64(b.N), bb.most) {
				b.Fatalf("%d of %d were admitted", n, b.N)
			}
			b.ReportMetric(float64(s.Stats().RoundTrips)/float64(b.N), "trips/op")
			b.ReportMetric(float64(s.Stats().CASConflicts)/float64(b.N), "conflicts/op")
		})
	}
}

// BenchmarkProcesses measures the cost of processes that compete for one key.
func BenchmarkProcesses(b *testing.B) {
	for _, n := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprint("processes=", n), func(b *testing.B) {
			all := processes(b, memcachetest.Start(b).Addr, n)
			rule := newRule("r", window(1<<31))
			var left, granted atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			each(all, 8, func(s *memcachestore.Store, _ int) {
				for left.Add(-1) >= 0 {
					granted.Add(apply(b, s, sluice.Take{Rule: rule, Key: "k", Cost: 1})[0].Granted)
				}
			})
			if granted.Load() != int64(b.N) {
				b.Fatalf("%d of %d were admitted", granted.Load(), b.N)
			}
			var conflicts int64
			for _, s := range all {
				conflicts += s.Stats().CASConflicts
			}
			b.ReportMetric(float64(conflicts)/float64(b.N), "conflicts/op")
		})
	}
}
