package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

// cpu returns the CPU time that the server has used, in microseconds.
func cpu(b *testing.B, server *redistest.Server) (micros float64) {
	b.Helper()
	info, err := server.Do("INFO", "cpu")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			micros += seconds * 1e6
		}
	}
	return micros
}

// BenchmarkDecide measures decisions of concurrent callers, and the server's CPU time per decision.
func BenchmarkDecide(b *testing.B) {
	limits := []struct {
		name  string
		limit sluice.Limit
	}{
		{"token_bucket", sluice.PerHour(3_600_000_000)},
		{"fixed_window", sluice.PerHour(1 << 31).WithAlgorithm(sluice.FixedWindow)},
		{"sliding_counter", sluice.PerHour(1 << 31).WithAlgorithm(sluice.SlidingWindowCounter)},
		{"sliding_log", sluice.PerSecond(100).WithAlgorithm(sluice.SlidingWindowLog)},
	}
	for _, l := range limits {
		for _, callers := range []int{1, 64, 256} {
			for _, keys := range []int{1, 10_000} {
				b.Run(fmt.Sprintf("%s/callers=%d/keys=%d", l.name, callers, keys), func(b *testing.B) {
					benchmarkDecide(b, l.limit, callers, keys)
				})
			}
		}
	}
}

func benchmarkDecide(b *testing.B, limit sluice.Limit, callers, keys int) {
	server := redistest.Shared(b)
	store := sluice.Must(redisstore.Open(redisstore.Config{URL: server.URL(), KeyPrefix: prefix()}))
	b.Cleanup(store.Close)
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "api", Limit: limit}))
	names := make([]string, keys)
	for i := range names {
		names[i] = "user-" + strconv.Itoa(i)
	}
	var allowed, next atomic.Int64
	b.SetParallelism((callers + 1) / 2) // on two CPUs
	before := cpu(b, server)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		out := make([]sluice.Decision, 1)
		takes := []sluice.Take{{Rule: rule, Cost: 1}}
		for pb.Next() {
			takes[0].Key = names[int(next.Add(1))%keys]
			if err := store.Apply(context.Background(), takes, out); err != nil {
				b.Error(err)
				return
			}
			if out[0].Allowed {
				allowed.Add(1)
			}
		}
	})
	b.StopTimer()
	b.ReportMetric((cpu(b, server)-before)/float64(b.N), "redis-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
	if limit.Algorithm != sluice.SlidingWindowLog && allowed.Load() != int64(b.N) {
		b.Errorf("%d of %d allowed", allowed.Load(), b.N)
	}
}
