package sluice_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
)

// A half-open breaker tolerates a server that fails now and then, and opens for one that keeps failing.
func TestBreakerWhileRampingUp(t *testing.T) {
	for _, tt := range []struct {
		every int64 // one call in this many fails
		away  int64
	}{{10, 1}, {1, 2}} {
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			s.disturb(refuses)
			var away, back, calls atomic.Int64
			l := farLimiter(t, s, sluice.FailOpen, sluice.WithEvents(sluice.Events{
				OnShardUnavailable: func(context.Context, int, error) { away.Add(1) },
				OnShardRecovered:   func(context.Context, int) { back.Add(1) },
			}))
			ask := func(n int) {
				for range n {
					mustAllow(t, l, "k", 1)
					pause(time.Millisecond)
				}
			}
			ask(30)
			s.disturb(nil)
			for back.Load() == 0 {
				ask(1)
			}
			s.disturb(func(context.Context, *sluice.Take) error {
				if calls.Add(1)%tt.every == 0 {
					return errAway
				}
				return nil
			})
			ask(100)
			if away.Load() != tt.away || tt.away > 1 && calls.Load() != 5 {
				t.Errorf("1 of %d calls fails: breaker opened %d times, after %d calls", tt.every, away.Load(), calls.Load())
			}
		})
	}
}

// However many calls succeeded before, the breaker opens quickly for a server that stops replying, and not for a short
// disruption.
func TestBreakerOpensUnderLoad(t *testing.T) {
	for _, tt := range []struct {
		lasts, after time.Duration
		away         bool
	}{{200 * time.Millisecond, 0, false}, {time.Second, 270 * time.Millisecond, true}} {
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			var since atomic.Pointer[time.Time]
			var opened time.Duration
			l := farLimiter(t, s, sluice.FailOpen, sluice.WithEvents(sluice.Events{
				OnShardUnavailable: func(context.Context, int, error) { opened = time.Since(*since.Load()) },
			}))
			for range 5000 {
				mustAllow(t, l, "k", 1)
				pause(time.Millisecond)
			}
			s.disturb(hangs)
			now := time.Now()
			since.Store(&now)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for time.Since(now) < tt.lasts {
						mustAllow(t, l, "k", 1)
						pause(time.Millisecond)
					}
				})
			}
			all.Wait()
			pause(2 * sluice.DefaultStoreTimeout) // until the last probe ends
			if opened > tt.after || opened > 0 != tt.away {
				t.Errorf("silent for %v: breaker opened after %v, want %v at most", tt.lasts, opened, tt.after)
			}
		})
	}
}
