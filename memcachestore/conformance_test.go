package memcachestore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/storetest"
)

// patient is a timeout that no slow machine exceeds.
const patient = time.Minute

// openStore opens a store that is closed with the test.
func openStore(t testing.TB, c memcachestore.Config) *memcachestore.Store {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = patient
	}
	s, err := memcachestore.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// stores returns a function that opens empty stores on one server.
func stores(base *memcachestore.Store) func(testing.TB, *storetest.Clock) sluice.Store {
	var opened atomic.Int64
	return func(_ testing.TB, clock *storetest.Clock) sluice.Store {
		return base.Sharing(fmt.Sprintf("t%d:", opened.Add(1)), clock.Now)
	}
}

// spread is several stores with the same keys, like those of several processes. Each call uses the next one.
type spread struct {
	stores []*memcachestore.Store
	calls  atomic.Uint64
}

func (s *spread) next() *memcachestore.Store { return s.stores[s.calls.Add(1)%uint64(len(s.stores))] }

func (s *spread) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	return s.next().Apply(ctx, takes, out)
}

func (s *spread) Reset(ctx context.Context, b sluice.Bucket) error {
	return s.next().Reset(ctx, b)
}

func (s *spread) Block(ctx context.Context, b sluice.Bucket, d time.Duration) error {
	return s.next().Block(ctx, b, d)
}

func (s *spread) Blocked(ctx context.Context, b sluice.Bucket) (time.Duration, error) {
	return s.next().Blocked(ctx, b)
}

// TestConformance runs storetest with several processes, except for the isolation of calls on several keys.
func TestConformance(t *testing.T) {
	t.Parallel()
	base := openStore(t, memcachestore.Config{Addrs: []string{memcachetest.Start(t).Addr}})
	var opened atomic.Int64
	storetest.Run(t, storetest.Harness{
		Open: func(_ testing.TB, clock *storetest.Clock) sluice.Store {
			prefix, s := fmt.Sprintf("t%d:", opened.Add(1)), &spread{}
			for range 3 {
				s.stores = append(s.stores, base.Sharing(prefix, clock.Now))
			}
			return s
		},
		Caps: storetest.Caps{NonAtomicKeys: true},
	})
}

// TestOneProcess runs all of storetest with one process and any number of servers.
func TestOneProcess(t *testing.T) {
	t.Parallel()
	addrs := []string{memcachetest.Start(t).Addr, memcachetest.StartUnix(t).Addr, memcachetest.Start(t).Addr}
	base := openStore(t, memcachestore.Config{Addrs: addrs})
	storetest.Run(t, storetest.Harness{Open: stores(base)})
}

// TestOnTheTimeOfDay runs the part of storetest that works on the store's own clock.
func TestOnTheTimeOfDay(t *testing.T) {
	base := openStore(t, memcachestore.Config{Addrs: []string{memcachetest.Start(t).Addr}})
	var opened atomic.Int64
	storetest.Run(t, storetest.Harness{
		Open: func(testing.TB, *storetest.Clock) sluice.Store {
			return base.Sharing(fmt.Sprintf("t%d:", opened.Add(1)), nil)
		},
		Caps: storetest.Caps{NonAtomicKeys: true, RealClock: true},
	})
}
