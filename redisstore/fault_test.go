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

// TestFaults waits more than it works: others run beside it.
func TestFaults(t *testing.T) {
	t.Parallel()
	outagetest.Run(t, underFaults)
}

// TestOutagesMeasured logs figures; see faulttest.Measure.
func TestOutagesMeasured(t *testing.T) { outagetest.Measure(t, underFaults) }

// TestCallersLeaveInTime: somebody with much time waits for a server that accepts and says nothing. Others, who have
// little, do not wait with him. That he ends before them now and then is the machine's doing.
func TestCallersLeaveInTime(t *testing.T) {
	proxy := faultproxy.Start(t, redistest.Start(t).Addr)
	store := open(t, redisstore.Config{URL: "redis://" + proxy.Addr})
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(1000)}))
	hurried := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		return store.Apply(ctx, []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, make([]sluice.Decision, 1))
	}
	first := 0 // how often they left before him
	for range 5 {
		proxy.Set(faultproxy.Fault{Silent: true})
		for hurried() == nil { // now it is known that something is wrong
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
		t.Errorf("callers with little time waited for one with much, %d times of 5", 5-first)
	}
}
