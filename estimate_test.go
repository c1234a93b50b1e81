package sluice_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
)

// stored returns the remaining quota of a key at the store.
func stored(t *testing.T, s *farStore, l *sluice.Limiter, key string) int64 {
	t.Helper()
	out := make([]sluice.Decision, 1)
	if err := s.Store.Apply(context.Background(), []sluice.Take{{Rule: l.Rules()[0], Key: key}}, out); err != nil {
		t.Fatal(err)
	}
	return out[0].Remaining
}

func mustPeek(t *testing.T, l *sluice.Limiter, key string) sluice.Decision {
	t.Helper()
	d, err := l.Peek(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var eventualLimits = []sluice.Limit{
	sluice.PerHour(1000).WithAlgorithm(sluice.FixedWindow),
	{Count: 1000, Window: time.Hour, Algorithm: sluice.FixedWindow, Align: sluice.AlignFirstRequest},
	sluice.PerCalendar(1000, sluice.CalendarDay, nil),
	sluice.PerHour(1000).WithAlgorithm(sluice.SlidingWindowCounter),
	sluice.Per(1000, 1000*time.Hour),
	sluice.Per(1000, 1000*time.Hour).WithAlgorithm(sluice.LeakyBucket),
}

// After a pause, all instances and the store agree, and the total is the admitted usage.
func TestEventualAgrees(t *testing.T) {
	for _, limit := range eventualLimits {
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			s.disturb(after(500 * time.Microsecond))
			all := eventualNodes(t, s, limit, sluice.FailClosed, 4)
			got := offer(t, all, 300, time.Second)
			here := 0
			for range 10 { // so that the estimates live until every instance has synced
				pause(40 * time.Millisecond)
				for _, l := range all {
					if mustPeek(t, l, "hot").Source == sluice.SourceEventual {
						here++
					}
				}
			}
			left := 1000 - int64(len(got.at))
			if n := stored(t, s, all[0], "hot"); n != left {
				t.Errorf("%v: the store has %d left, want %d", limit, n, left)
			}
			for i, l := range all {
				// The extrapolation of other instances' usage is still decreasing.
				if d := mustPeek(t, l, "hot"); d.Remaining > left || d.Remaining < left-10 {
					t.Errorf("%v: process %d believes that %d are left, want %d: %+v", limit, i, d.Remaining, left, d)
				}
			}
			if here != 40 {
				t.Errorf("%v: %d of 40 peeks were answered here", limit, here)
			}
		})
	}
}

// A single instance is exact, also for usage during a sync. Usage that it reports after a window has ended is charged
// to the next window: at most the usage between two syncs.
func TestEventualAlone(t *testing.T) {
	for _, limit := range []sluice.Limit{
		sluice.PerSecond(1000).WithAlgorithm(sluice.FixedWindow), {Count: 1000, Window: time.Second, Algorithm: sluice.FixedWindow, Align: sluice.AlignFirstRequest},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			s.disturb(after(4 * time.Millisecond))
			l := eventualNodes(t, s, limit, sluice.FailClosed, 1)[0]
			toNextSecond()
			pause(5 * time.Millisecond)
			// A sync takes 4 ms and starts at most 115 ms after the previous one. Usage reported after a window has
			// ended is charged to the next window.
			const late = 3 * (119/7 + 2)
			left, charged := int64(1000), true
			for start := time.Now(); time.Since(start) < 2900*time.Millisecond; pause(7 * time.Millisecond) {
				d := mustAllow(t, l, "k", 3)
				if d.Remaining > left {
					left, charged = 1000, false // the next window
				}
				left -= 3
				if d.Remaining < left && left > 1000-late && !charged { // late reports occur at most once per window
					left, charged = max(d.Remaining, left-late), true
				}
				if d.Remaining != left {
					t.Fatalf("%v: after %v: %+v, want %d remaining", limit, time.Since(start), d, left)
				}
			}
			if err := l.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := stored(t, s, l, "k"); n != left {
				t.Errorf("%v: the store has %d left, want %d", limit, n, left)
			}
		})
	}
}

// Denials under a ChargeDenied rule are reported to the store.
func TestEventualChargesDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerHour(10).WithAlgorithm(sluice.FixedWindow), Accuracy: sluice.AccuracyEventual, ChargeDenied: true})
		l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}))
		for range 30 {
			mustAllow(t, l, "k", 1)
		}
		pause(time.Second)
		synctest.Wait()
		more, out := sluice.Must(sluice.PerHour(100).WithAlgorithm(sluice.FixedWindow).Build()), make([]sluice.Decision, 1)
		if err := s.Store.Apply(t.Context(), []sluice.Take{{Rule: rule, Limit: more, Key: "k"}}, out); err != nil || out[0].Remaining != 70 {
			t.Errorf("%d left of 100 after 30, most of them denied (%v)", out[0].Remaining, err)
		}
	})
}

// A busy key costs a few calls per second, whatever its traffic, and a rare key no more than with AccuracyExact.
func TestEventualCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		s.disturb(after(500 * time.Microsecond))
		const nodes, rate, seconds = 8, 10_000, 2
		all := eventualNodes(t, s, sluice.PerSecond(rate/10), sluice.FailClosed, nodes)
		got := offer(t, all, rate, seconds*time.Second)
		calls := s.calls.Load()
		t.Logf("%d decisions, %d calls: %.1f a process and second", got.offered, calls, float64(calls)/nodes/seconds)
		if calls > 12*nodes*seconds {
			t.Errorf("%d decisions cost %d calls, want at most 12 a process and second", got.offered, calls)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		l := eventualNodes(t, s, sluice.PerHour(1000), sluice.FailClosed, 1)[0]
		for range 20 {
			if d := mustAllow(t, l, "rare", 1); d.Source != sluice.SourceStore {
				t.Fatalf("%+v", d)
			}
			pause(300 * time.Millisecond)
		}
		if n := s.calls.Load(); n != 20 {
			t.Errorf("20 takes of a rare key cost %d calls", n)
		}
		synctest.Wait() // until syncing stops, otherwise the bubble would not end
	})
}

// A crashed instance loses only its unreported usage.
func TestEventualCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		const limit = 1000
		all := eventualNodes(t, s, sluice.PerHour(limit).WithAlgorithm(sluice.FixedWindow), sluice.FailClosed, 2)
		dies := all[0]
		var gone atomic.Bool
		s.disturb(func(_ context.Context, k *sluice.Take) error {
			if gone.Load() && k.Rule == dies.Rules()[0] {
				return errAway
			}
			return nil
		})
		for range 400 {
			mustAllow(t, dies, "k", 1)
			pause(time.Millisecond)
		}
		gone.Store(true)
		known := stored(t, s, all[1], "k")
		if lost := known - 600; lost < 0 || lost > 130 {
			t.Errorf("%d of 400 were not reported, at 1 a millisecond", lost)
		}
		admitted := int64(0)
		for range 2 * limit {
			if mustAllow(t, all[1], "k", 1).Allowed {
				admitted++
			}
			pause(time.Millisecond)
		}
		if admitted > known || admitted < known-200 { // the crashed instance's usage is extrapolated for a while
			t.Errorf("the other admitted %d of %d left", admitted, known)
		}
	})
}

// While the store is unavailable, an instance decides from its estimate for a moment and then by its fail mode. On
// recovery it reports its usage once, even though its first report may have arrived.
func TestEventualStoreAway(t *testing.T) {
	for mode, want := range map[sluice.FailMode]sluice.Source{
		sluice.FailLocal: sluice.SourceFailLocal, sluice.FailOpen: sluice.SourceFailOpen, sluice.FailClosed: sluice.SourceFailClosed,
	} {
		for _, limit := range eventualLimits {
			synctest.Test(t, func(t *testing.T) {
				s := newFar()
				var away atomic.Bool
				s.disturb(func(context.Context, *sluice.Take) error {
					if away.Load() {
						return errAway
					}
					return nil
				})
				l := eventualNodes(t, s, limit, mode, 1)[0]
				spend := func(n int) (here, local int64) {
					for range n {
						switch d := mustAllow(t, l, "k", 4); {
						case d.Source == want && d.Source == sluice.SourceFailLocal:
							local += d.Granted
						case d.Source == want:
						case d.Source.Degraded() || !d.Allowed:
							t.Fatalf("%+v", d)
						default:
							here += d.Granted
						}
						pause(5 * time.Millisecond)
					}
					return here, local
				}
				before, _ := spend(50)
				away.Store(true)
				during, local := spend(400)
				if during < 4*60 || during > 4*130 {
					t.Errorf("%d were admitted while the store was unavailable for 2 s, want the traffic of 0.5 s", during)
				}
				if sum := before + during + local; mode == sluice.FailLocal && (sum > 1000 || local == 0) {
					t.Errorf("%v: %d were admitted of 1000, %d of them locally", limit, sum, local)
				}
				away.Store(false)
				pause(10 * time.Second)
				synctest.Wait()
				if left, want := stored(t, s, l, "k"), 1000-before-during-local; left != want {
					t.Errorf("%v: the store has %d left, want %d", limit, left, want)
				}
				if d := mustAllow(t, l, "k", 1); d.Source != sluice.SourceStore {
					t.Errorf("%+v", d)
				}
			})
		}
	}
}

// A report whose reply is lost is sent again: counted at most twice, never lost.
func TestEventualLostAnswers(t *testing.T) {
	for _, limit := range eventualLimits {
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			l := eventualNodes(t, s, limit, sluice.FailClosed, 1)[0]
			var lost int
			s.disturb(func(ctx context.Context, k *sluice.Take) error {
				if k.Receipt == 0 || lost == 4 {
					return nil
				}
				lost++
				if err := s.Store.Apply(ctx, []sluice.Take{*k}, make([]sluice.Decision, 1)); err != nil {
					return err
				}
				return errAway
			})
			mustAllow(t, l, "k", 1)
			mustAllow(t, l, "k", 9)
			pause(2 * time.Second)
			synctest.Wait()
			if left := stored(t, s, l, "k"); lost != 4 || left != 1000-1-2*9 {
				t.Errorf("%v: %d answers lost, %d left, want %d", limit, lost, left, 1000-1-2*9)
			}
		})
	}
}

// Closing a limiter reports its usage; from then on the store decides.
func TestEventualClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range eventualLimits {
			s := newFar()
			l := eventualNodes(t, s, limit, sluice.FailClosed, 1)[0]
			for range 20 {
				mustAllow(t, l, "k", 1)
			}
			if left := stored(t, s, l, "k"); left != 999 {
				t.Errorf("%v: %d left before an exchange", limit, left)
			}
			if err := l.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left := stored(t, s, l, "k"); left != 980 {
				t.Errorf("%v: %d left after Close, want 980", limit, left)
			}
			if d := mustAllow(t, l, "k", 1); d.Source != sluice.SourceStore || d.Remaining != 979 {
				t.Errorf("%v: after Close: %+v", limit, d)
			}
		}
	})
}
