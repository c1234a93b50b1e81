package memcachestore_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
)

// gather starts n callers of a key and returns when all of them wait.
func gather(s *memcachestore.Store, take sluice.Take, n int, f func(i int)) *sync.WaitGroup {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	for s.Waiting(take.Rule, take.Key) < n {
		runtime.Gosched()
	}
	return &all
}

// TestTogether checks that callers that wait for a key share a read and a swap, and are admitted exactly the limit.
func TestTogether(t *testing.T) {
	s, meddle := meddled(t, memcachetest.Start(t).Addr)
	rule := newRule("r", window(20))
	take := sluice.Take{Rule: rule, Key: "k", Cost: 1}
	var granted atomic.Int64
	var all *sync.WaitGroup
	meddle(func() {
		all = gather(s, take, 50, func(i int) {
			twice := take
			twice.IdempotencyID = uint64(i/2 + 1) // each ID is sent by two callers
			if d := apply(t, s, twice)[0]; i%2 == 0 {
				granted.Add(d.Granted)
			}
		})
	})
	granted.Add(apply(t, s, take)[0].Granted)
	all.Wait()
	if n := s.Stats().RoundTrips; n != 4 {
		t.Errorf("51 calls took %d round trips, want 2 for the first and 2 for the others", n)
	}
	if n := spent(t, s, rule, "k"); n != 20 || granted.Load() != 20 {
		t.Errorf("usage is %d and %d were admitted, want 20", n, granted.Load())
	}
}

// TestGivesUpTogether: one caller of a batch is cancelled and the swap is lost. The swap that succeeds must not include
// its take.
func TestGivesUpTogether(t *testing.T) {
	addr := memcachetest.Start(t).Addr
	s, meddle := meddled(t, addr)
	other := openStore(t, memcachestore.Config{Addrs: []string{addr}})
	rule := newRule("r", window(100))
	take := sluice.Take{Rule: rule, Key: "k", Cost: 1}
	hurried, cancel := context.WithCancel(ctx)
	var failed atomic.Int64
	var all *sync.WaitGroup
	meddle(func() {
		all = gather(s, take, 10, func(i int) {
			mine := ctx
			if i == 0 {
				mine = hurried
			}
			out := []sluice.Decision{{}}
			if err := s.Apply(mine, []sluice.Take{take}, out); errors.Is(err, context.Canceled) {
				failed.Add(1)
			} else if err != nil || !out[0].Allowed {
				t.Errorf("%+v, error %v", out[0], err)
			}
		})
		meddle(func() {
			cancel()
			apply(t, other, take)
		})
	})
	apply(t, s, take)
	all.Wait()
	if n := failed.Load(); n != 1 {
		t.Errorf("%d were cancelled, want 1", n)
	}
	if n := spent(t, s, rule, "k"); n != 1+9+1 {
		t.Errorf("usage is %d, want 1 by the first, 9 by the waiting callers and 1 by another process", n)
	}
}
