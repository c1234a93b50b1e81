package sluice_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
)

// arriving is a store whose single server replies after a fixed time. patience is its Patience as a function of the
// time since the call.
type arriving struct {
	replies  time.Duration
	patience func(since time.Duration) (left time.Duration, own bool)
	began    atomic.Pointer[time.Time]
	calls    atomic.Int64
}

func (s *arriving) Shards() int            { return 1 }
func (s *arriving) Shard(*sluice.Take) int { return 0 }

func (s *arriving) Patience(time.Duration) (time.Duration, bool) {
	return s.patience(time.Since(*s.began.Load()))
}

func (s *arriving) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	now := time.Now()
	s.began.Store(&now)
	s.calls.Add(1)
	select {
	case <-time.After(s.replies):
		for i := range takes {
			out[i] = sluice.Decision{Allowed: true, Granted: 1, Limit: 1000, Remaining: 500}
		}
		return nil
	case <-ctx.Done():
		return errors.Join(sluice.ErrUnavailable, ctx.Err())
	}
}

// TestPatience: the store decides while only this process is late, for at most 10 × timeout. The fail mode decides as
// soon as the server is late.
func TestPatience(t *testing.T) {
	const budget = 10 * time.Millisecond
	own := func(time.Duration) (time.Duration, bool) { return budget, true }
	silentFor := func(written time.Duration) func(time.Duration) (time.Duration, bool) {
		return func(since time.Duration) (time.Duration, bool) { return max(0, written+budget-since), false }
	}
	for name, tt := range map[string]struct {
		replies  time.Duration
		patience func(time.Duration) (time.Duration, bool)
		source   sluice.Source
		took     time.Duration
	}{
		"in time":                         {9 * time.Millisecond, silentFor(0), sluice.SourceStore, 9 * time.Millisecond},
		"silent":                          {15 * time.Millisecond, silentFor(0), sluice.SourceFailLocal, budget},
		"there and not read":              {35 * time.Millisecond, own, sluice.SourceStore, 35 * time.Millisecond},
		"written late":                    {15 * time.Millisecond, silentFor(7 * time.Millisecond), sluice.SourceStore, 15 * time.Millisecond},
		"written late to a silent server": {time.Second, silentFor(7 * time.Millisecond), sluice.SourceFailLocal, 17 * time.Millisecond},
		"never read":                      {time.Second, own, sluice.SourceFailLocal, 10 * budget},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := sluice.Must(sluice.New(&arriving{replies: tt.replies, patience: tt.patience}, "r", sluice.PerHour(1000), sluice.WithStoreTimeout(budget)))
				began := time.Now()
				d, err := l.Allow(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); d.Source != tt.source || took != tt.took {
					t.Errorf("%v decided after %v, want %v after %v", d.Source, took, tt.source, tt.took)
				}
			})
		})
	}
}

// TestPatienceOfCaller: a caller whose context is done does not wait for a late process.
func TestPatienceOfCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &arriving{replies: time.Second, patience: func(time.Duration) (time.Duration, bool) { return time.Millisecond, true }}
		l := sluice.Must(sluice.New(store, "r", sluice.PerHour(1000), sluice.WithStoreTimeout(10*time.Millisecond)))
		ctx, cancel := context.WithTimeout(t.Context(), 13*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := l.Allow(ctx, "k")
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 13*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// TestOwnLatenessIsForgiven: the circuit breaker opens if most decisions exceed the timeout because of the server, and
// not if this process is late.
func TestOwnLatenessIsForgiven(t *testing.T) {
	for _, own := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &arriving{replies: 15 * time.Millisecond, patience: func(time.Duration) (time.Duration, bool) { return 10 * time.Millisecond, own }}
			away := 0
			l := sluice.Must(sluice.New(store, "r", sluice.PerHour(1000), sluice.WithStoreTimeout(10*time.Millisecond),
				sluice.WithEvents(sluice.Events{OnShardUnavailable: func(context.Context, int, error) { away++ }})))
			for range 40 {
				if _, err := l.Allow(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
			}
			if forgiven := away == 0 && store.calls.Load() == 40; forgiven != own {
				t.Errorf("own process late %v: %d calls, breaker opened %d times", own, store.calls.Load(), away)
			}
			synctest.Wait()
		})
	}
}
