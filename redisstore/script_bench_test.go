package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// BenchmarkScript measures the server's cost of a decision, alone and batched with others in one run of the script,
// each on its own key.
func BenchmarkScript(b *testing.B) {
	for _, l := range []struct {
		name  string
		limit sluice.Limit
	}{
		{"token_bucket", sluice.PerHour(3_600_000_000)},
		{"token_bucket_fraction", sluice.PerHour(3_599_999_929)},
		{"fixed_window", sluice.PerHour(1 << 31).WithAlgorithm(sluice.FixedWindow)},
		{"sliding_counter", sluice.PerHour(1 << 31).WithAlgorithm(sluice.SlidingWindowCounter)},
		{"sliding_log", sluice.PerSecond(10).WithAlgorithm(sluice.SlidingWindowLog)},
	} {
		for _, n := range []int{1, 4, 16, 64} {
			b.Run(fmt.Sprintf("%s/together=%d", l.name, n), func(b *testing.B) { benchmarkScript(b, l.limit, n) })
		}
	}
}

// BenchmarkSeveralLimits measures the server's cost of one decision over several limits.
func BenchmarkSeveralLimits(b *testing.B) {
	server := redistest.Shared(b)
	for _, n := range []int{1, 2, 5} {
		b.Run(fmt.Sprintf("limits=%d", n), func(b *testing.B) {
			store := sluice.Must(Open(Config{URL: server.URL(), KeyPrefix: b.Name() + ":"}))
			b.Cleanup(store.Close)
			takes, out := make([]sluice.Take, n), make([]sluice.Decision, n)
			for i := range takes {
				takes[i].Cost = 1
				takes[i].Rule = sluice.Must(sluice.NewRule(sluice.Rule{
					Name: "rule-" + strconv.Itoa(i), Limit: sluice.PerHour(3_600_000_000),
				}))
			}
			decided := 0
			before := scriptTime(server)
			for b.Loop() {
				decided++
				for i := range takes {
					takes[i].Key = "user-" + strconv.Itoa(decided%10_000)
				}
				if err := store.Apply(context.Background(), takes, out); err != nil || !out[n-1].Allowed {
					b.Fatal(out[n-1], err)
				}
			}
			b.ReportMetric((scriptTime(server)-before)/float64(decided), "script-µs/decision")
		})
	}
}

// scriptTime returns the time that the server has spent in scripts, in microseconds, without reading requests and
// writing replies.
func scriptTime(server *redistest.Server) float64 {
	stats := sluice.Must(server.Do("INFO", "commandstats"))
	_, stats, _ = strings.Cut(stats, "cmdstat_evalsha:")
	_, stats, _ = strings.Cut(stats, "usec=")
	micros, _, _ := strings.Cut(stats, ",")
	n, _ := strconv.ParseFloat(micros, 64)
	return n
}

func benchmarkScript(b *testing.B, limit sluice.Limit, together int) {
	server := redistest.Shared(b)
	store := sluice.Must(Open(Config{URL: server.URL(), KeyPrefix: b.Name() + ":"}))
	b.Cleanup(store.Close)
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "api", Limit: limit}))
	decided := 0
	before := scriptTime(server)
	for b.Loop() {
		all := &call{allFast: true}
		for range together {
			decided++
			key := "user-" + strconv.Itoa(decided%10_000)
			all.join(sluice.Must(newCall(&store.names, store.recorded.Load(), sluice.Must(opsOf([]sluice.Take{{Rule: rule, Key: key, Cost: 1}})))))
		}
		if err := store.apply(context.Background(), all); err != nil {
			b.Fatal(err)
		}
		if len(all.answers) != together {
			b.Fatalf("%d answers", len(all.answers))
		}
	}
	b.ReportMetric((scriptTime(server)-before)/float64(decided), "script-µs/decision")
}
