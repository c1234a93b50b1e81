//go:build unix

package memcachestore_test

import (
	"strconv"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/internal/testenv/outagetest"
	"github.com/sluiceproject/sluice/memcachestore"
)

var underFaults = outagetest.Harness{
	Start: func(t testing.TB) *outagetest.Server {
		server := memcachetest.Start(t)
		return &outagetest.Server{
			Addr: server.Addr, Pause: server.Pause, Resume: server.Resume, Kill: server.Kill, Restart: server.Restart,
			Operations: func() (n int64) {
				stats := server.Stats("")
				for _, command := range []string{"cmd_get", "cmd_set"} {
					calls, err := strconv.ParseInt(stats[command], 10, 64)
					if err != nil {
						t.Error(err)
					}
					n += calls
				}
				return n
			},
		}
	},
	Open: func(t testing.TB, addr string) sluice.Store {
		return openStore(t, memcachestore.Config{Addrs: []string{addr}})
	},
}

// TestFaults runs in parallel with other tests, because it mostly waits.
func TestFaults(t *testing.T) {
	t.Parallel()
	outagetest.Run(t, underFaults)
}

// TestOutagesMeasured logs figures; see [outagetest.Measure].
func TestOutagesMeasured(t *testing.T) { outagetest.Measure(t, underFaults) }
