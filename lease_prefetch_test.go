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

// busyUntilBoundary requests a key every millisecond until the end of a window.
func busyUntilBoundary(t *testing.T, l *sluice.Limiter) {
	t.Helper()
	toNextSecond()
	for range 950 {
		mustAllow(t, l, "k", 1)
		pause(time.Millisecond)
	}
	toNextSecond()
}

// The first callers of a window use a lease that was prefetched in the background, and do not call the store.
func TestLeaseOfTheNextWindow(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Millisecond, 4 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			s.disturb(after(delay))
			l := leaseNodes(t, s, sluice.PerSecond(100_000).WithAlgorithm(sluice.FixedWindow), 1)[0]
			busyUntilBoundary(t, l)
			pause(100 * time.Microsecond)
			calls := s.calls.Load()
			var all sync.WaitGroup
			for range 20 { // callers wait for the prefetch to end
				all.Go(func() {
					start := time.Now()
					if d := mustAllow(t, l, "k", 1); d.Source != sluice.SourceLease || time.Since(start) > sluice.DefaultStoreTimeout {
						t.Errorf("after %v: %+v", time.Since(start), d)
					}
				})
			}
			all.Wait()
			synctest.Wait()
			if more := s.calls.Load() - calls; more > 2 { // the prefetched lease may be too small
				t.Errorf("20 callers at the beginning of a window cost %d calls", more)
			}
			pause(10 * time.Millisecond)
			start := time.Now()
			if d := mustAllow(t, l, "k", 1); d.Source != sluice.SourceLease || time.Since(start) > 0 {
				t.Errorf("after %v: %+v", time.Since(start), d)
			}
		})
	}
}

// If the store is unavailable at the start of a window, callers wait for at most the store timeout, and their fail mode
// decides.
func TestLeaseOfTheNextWindowFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		started := time.Now()
		s.disturb(func(ctx context.Context, k *sluice.Take) error {
			if time.Since(started) < 2*time.Second {
				return nil
			}
			return hangs(ctx, k)
		})
		pause(time.Until(started.Add(time.Second)))
		l := leaseNodes(t, s, sluice.PerSecond(100_000).WithAlgorithm(sluice.FixedWindow), 1)[0]
		for time.Since(started) < 2*time.Second-time.Millisecond {
			mustAllow(t, l, "k", 1)
			pause(time.Millisecond)
		}
		pause(time.Until(started.Add(2*time.Second + 100*time.Microsecond)))
		start := time.Now()
		d := mustAllow(t, l, "k", 1)
		if took := time.Since(start); d.Source != sluice.SourceFailClosed || took > sluice.DefaultStoreTimeout {
			t.Errorf("after %v: %+v", took, d)
		}
	})
}

// A key without recent requests is not prefetched for the next window.
func TestNoLeaseOfTheNextWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		l := leaseNodes(t, s, sluice.PerSecond(100_000).WithAlgorithm(sluice.FixedWindow), 1)[0]
		toNextSecond()
		for range 500 {
			mustAllow(t, l, "k", 1)
			pause(time.Millisecond)
		}
		calls := s.calls.Load()
		pause(550 * time.Millisecond)
		if more := s.calls.Load() - calls; more > 0 {
			t.Errorf("%d calls for a key without requests", more)
		}
	})
}

// After slow replies an instance expects the next window too early. If the store is called before the window starts,
// and the old one has no quota left, it is called again.
func TestLeaseOfTheNextWindowTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		started := time.Now()
		s.disturb(func(ctx context.Context, k *sluice.Take) error {
			if time.Since(started) < 1900*time.Millisecond {
				return after(4*time.Millisecond)(ctx, k)
			}
			return nil
		})
		l := leaseNodes(t, s, sluice.PerSecond(100).WithAlgorithm(sluice.FixedWindow), 1)[0]
		pause(time.Second)
		for time.Since(started) < 1990*time.Millisecond {
			mustAllow(t, l, "k", 1)
			pause(time.Millisecond)
		}
		pause(time.Until(started.Add(2*time.Second + 5*time.Millisecond)))
		if d := mustAllow(t, l, "k", 1); d.Source != sluice.SourceLease {
			t.Errorf("%+v", d)
		}
	})
}

// An instance that expects a used-up window to have ended before it has calls the store twice and then caches the
// denial.
func TestLeaseOfAWindowThatLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		started := time.Now()
		s.disturb(func(ctx context.Context, k *sluice.Take) error {
			if time.Since(started) < 1200*time.Millisecond {
				return after(100*time.Millisecond)(ctx, k)
			}
			return nil
		})
		l := leaseNodes(t, s, sluice.PerSecond(100).WithAlgorithm(sluice.FixedWindow), 1, sluice.WithStoreTimeout(time.Second))[0]
		pause(time.Second)
		for time.Since(started) < 1950*time.Millisecond { // the instance expects the window to end at 1900 ms
			mustAllow(t, l, "k", 1)
			pause(time.Millisecond)
		}
		calls := s.calls.Load()
		for time.Since(started) < 1990*time.Millisecond {
			if d := mustAllow(t, l, "k", 1); d.Allowed {
				t.Fatalf("%+v", d)
			}
			pause(time.Millisecond / 4)
		}
		if more := s.calls.Load() - calls; more > 2 {
			t.Errorf("160 denials cost %d calls", more)
		}
	})
}

// lateReply is a store one reply of which, to the first call late in a second, arrives in the next second.
type lateReply struct {
	*farStore
	late atomic.Bool
}

func (s *lateReply) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	asked := time.Duration(time.Now().UnixNano()) % time.Second
	err := s.farStore.Apply(ctx, takes, out)
	if asked > 700*time.Millisecond && s.late.CompareAndSwap(false, true) {
		pause(1100*time.Millisecond - asked)
	}
	return err
}

// A reply about an ended window does not change the state of the next one.
func TestLeaseAnsweredLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 100_000
		s := &lateReply{farStore: newFar()}
		rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerSecond(limit).WithAlgorithm(sluice.FixedWindow), Accuracy: sluice.AccuracyLease})
		l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}, sluice.WithStoreTimeout(time.Second)))
		defer func() {
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		busyUntilBoundary(t, l)
		for i := range int64(300) {
			pause(time.Millisecond)
			d, left := mustAllow(t, l, "k", 1), time.Second-time.Duration(i+1)*time.Millisecond
			if d.Remaining != limit-i-1 || (d.ResetAfter-left).Abs() > 10*time.Millisecond {
				t.Fatalf("%+v, want %d remaining, and %v until the window ends", d, limit-i-1, left)
			}
		}
		if !s.late.Load() {
			t.Error("no reply was late")
		}
	})
}
