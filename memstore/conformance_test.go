package memstore_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/storetest"
)

func open(_ testing.TB, clock *storetest.Clock) sluice.Store {
	return sluice.Must(memstore.Open(memstore.Config{Now: clock.Now}))
}

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{Open: open})
}

// TestOnTheTimeOfDay runs the conformance tests that work with the store's own clock.
func TestOnTheTimeOfDay(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open: func(testing.TB, *storetest.Clock) sluice.Store { return memstore.New() },
		Caps: storetest.Caps{RealClock: true},
	})
}

// TestBudgetsAgree: if there is room for its keys, the decisions of a store depend neither on its memory limit nor on
// whether it keeps keys. There is room for few keys.
func TestBudgetsAgree(t *testing.T) {
	small := storetest.Harness{Open: func(_ testing.TB, clock *storetest.Clock) sluice.Store {
		return sluice.Must(memstore.Open(memstore.Config{Now: clock.Now, MaxBytes: 1<<20 + 8<<10, KeepKeys: true}))
	}}
	storetest.Compare(t, storetest.Harness{Open: open}, small)
}

// TestPeerDefects tests defects that only a store in memory can have; the others are in package storetest.
func TestPeerDefects(t *testing.T) {
	const flood = 200_000 // keys, of which 1 MiB holds 20 %
	ctx := context.Background()
	store := sluice.Must(memstore.Open(memstore.Config{MaxBytes: 1 << 20}))
	limiter := sluice.Must(sluice.New(store, "api", sluice.PerHour(5)))
	spent := func(key string) (admitted int64) {
		for range 10 {
			admitted += sluice.Must(limiter.Allow(ctx, key)).Granted
		}
		return admitted
	}
	if n := spent("victim"); n != 5 {
		t.Fatalf("5/h admitted %d", n)
	}
	if err := limiter.Block(ctx, "blocked", time.Hour); err != nil {
		t.Fatal(err)
	}
	for i := range flood {
		sluice.Must(limiter.Allow(ctx, "flood "+strconv.Itoa(i)))
	}
	// throttled, Traefik and nginx evict the least recently used key, and with it its usage.
	t.Run("flood_evicts_the_limited_key", func(t *testing.T) {
		if n := spent("victim"); n != 0 {
			t.Errorf("after %d other keys the limited one was admitted %d times", flood, n)
		}
		if n := spent("blocked"); n != 0 {
			t.Errorf("after %d other keys the blocked one was admitted %d times", flood, n)
		}
	})
	// tollbooth keeps a key for ten years, and caddy's ring buffers took 4.8 GB.
	t.Run("memory_without_bound", func(t *testing.T) {
		if n := store.UsedBytes(); n > 1<<20 {
			t.Errorf("%d bytes, the limit is %d", n, 1<<20)
		}
	})
	// Keys without room may be denied too early, and are never allowed too much.
	t.Run("overflow_grants_too_much", func(t *testing.T) {
		for i := range 1000 {
			key := "late " + strconv.Itoa(i)
			if n := spent(key); n > 5 {
				t.Fatalf("%q, for which there was no room: 5/h admitted %d", key, n)
			}
		}
	})
}
