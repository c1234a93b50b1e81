package redisstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/faultproxy"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

// TestOutOfStep: callers use different keys over connections on which some replies arrive twice, late or never. Each
// call must return an error or the right decision, and the process must survive.
func TestOutOfStep(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := faultproxy.Start(t, server.Addr)
	direct := open(t, redisstore.Config{URL: server.URL()})
	s := open(t, redisstore.Config{URL: "redis://" + proxy.Addr})
	calls := 30_000
	if os.Getenv("SLUICE_SOAK") != "" {
		calls = 1_000_000
	}
	var faults, failed, right, asked atomic.Int64
	proxy.Set(faultproxy.Fault{Change: func(c *faultproxy.Conn, b []byte) []byte {
		b = append(c.Kept, b...)
		c.Kept = nil
		switch rand.IntN(300) {
		case 0:
			b = append(b, b...)
		case 1:
			c.Kept, b = b, nil
		case 2:
			b = nil
		default:
			return b
		}
		faults.Add(1)
		return b
	}})
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.Limit{
		Count: 1<<32 - 1, Window: 24 * time.Hour, Algorithm: sluice.FixedWindow, Align: sluice.AlignFirstRequest,
	}}))
	// The cost identifies the key of a decision: the usage of a key is a multiple of its cost.
	costs := []int64{101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179}
	var all sync.WaitGroup
	for i, cost := range costs {
		all.Go(func() {
			key := strconv.Itoa(i)
			granted, sent := int64(0), int64(0) // failed calls may have been charged, perhaps later
			check := func(spent int64) {
				if spent%cost != 0 || spent < granted || spent > sent {
					t.Errorf("key %s, cost %d: usage %d, want %d to %d", key, cost, spent, granted, sent)
				}
			}
			for asked.Add(1) <= int64(calls) {
				sent += cost
				out := []sluice.Decision{{}}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				err := s.Apply(ctx, []sluice.Take{{Rule: rule, Key: key, Cost: cost}}, out)
				cancel()
				if err != nil {
					if !errors.Is(err, sluice.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					failed.Add(1)
					continue
				}
				granted += cost
				right.Add(1)
				check(out[0].Limit - out[0].Remaining)
			}
			d := apply(t, direct, sluice.Take{Rule: rule, Key: key})[0]
			check(d.Limit - d.Remaining)
		})
	}
	all.Wait()
	t.Logf("%d faults, %d errors, %d right decisions", faults.Load(), failed.Load(), right.Load())
	if faults.Load() == 0 || failed.Load() == 0 || right.Load() < int64(calls)/10 {
		t.Error("too few faults, errors or right decisions")
	}
}
