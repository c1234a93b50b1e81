package redisstore_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/faultproxy"
	"github.com/sluiceproject/sluice/internal/testenv/outagetest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

var underFaults = outagetest.Harness{
	Start: func(t testing.TB) *outagetest.Server {
		server := redistest.Start(t)
		must := func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		return &outagetest.Server{
			Addr:    server.Addr,
			Pause:   func() { must(server.Stop()) },
			Resume:  func() { must(server.Continue()) },
			Kill:    server.Kill,
			Restart: func() { must(server.Restart()) },
			Operations: func() int64 {
				stats, err := server.Do("INFO", "commandstats")
				must(err)
				_, rest, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
				calls, _, _ := strings.Cut(rest, ",")
				n, _ := strconv.ParseInt(calls, 10, 64)
				return n
			},
		}
	},
	Open: func(t testing.TB, addr string) sluice.Store {
		return open(t, redisstore.Config{URL: "redis://" + addr, KeyPrefix: prefix()})
	},
}

// TestFaults runs in parallel with other tests, because it mostly waits.
func TestFaults(t *testing.T) {
	t.Parallel()
	outagetest.Run(t, underFaults)
}

// TestOutagesMeasured logs figures; see [outagetest.Measure].
func TestOutagesMeasured(t *testing.T) { outagetest.Measure(t, underFaults) }

// TestCallersLeaveInTime: a caller with a long deadline waits for a server that accepts connections and sends nothing.
// Callers with short deadlines must not wait with it. On a busy machine the first caller may occasionally return before
// them.
func TestCallersLeaveInTime(t *testing.T) {
	proxy := faultproxy.Start(t, redistest.Start(t).Addr)
	store := open(t, redisstore.Config{URL: "redis://" + proxy.Addr})
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(1000)}))
	hurried := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		return store.Apply(ctx, []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, make([]sluice.Decision, 1))
	}
	first := 0 // how often they returned before the first caller
	for range 5 {
		proxy.Set(faultproxy.Fault{Silent: true})
		for hurried() == nil { // until the store is known to be unavailable
		}
		patient, begun := make(chan error, 1), make(chan struct{})
		go func() {
			close(begun)
			patient <- store.Reset(t.Context(), sluice.Bucket{Rule: rule, Key: "k"})
		}()
		<-begun
		for range 3 {
			if hurried() == nil {
				t.Fatal("answered")
			}
		}
		select {
		case <-patient:
			proxy.Heal()
		default:
			first++
			proxy.Heal()
			<-patient
		}
	}
	if first < 3 {
		t.Errorf("callers with short deadlines waited for one with a long deadline, %d of 5 times", 5-first)
	}
}
