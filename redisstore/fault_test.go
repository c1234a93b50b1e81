package redisstore_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/faulttest"
	"github.com/sluiceproject/sluice/internal/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

var underFaults = faulttest.Harness{
	Start: func(t testing.TB) *faulttest.Server {
		server := redistest.Start(t)
		must := func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		return &faulttest.Server{
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
		return open(t, redisstore.Config{URL: "redis://" + addr, Prefix: prefix()})
	},
}

func TestFaults(t *testing.T) { faulttest.Run(t, underFaults) }

// TestOutagesMeasured logs figures; see faulttest.Measure.
func TestOutagesMeasured(t *testing.T) {
	if os.Getenv("SLUICE_SOAK") == "" {
		t.Skip("set SLUICE_SOAK to measure")
	}
	faulttest.Measure(t, underFaults)
}
