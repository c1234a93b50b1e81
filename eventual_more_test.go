package sluice_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// stored is what the store has left of a key.
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
	sluice.PerHour(1000).With(sluice.FixedWindow),
	{Count: 1000, Window: time.Hour, Algorithm: sluice.FixedWindow, Align: sluice.AlignFirstHit},
	sluice.PerCalendar(1000, sluice.CalendarDay, nil),
	sluice.PerHour(1000).With(sluice.SlidingCounter),
	sluice.Per(1000, 1000*time.Hour),
	sluice.Per(1000, 1000*time.Hour).With(sluice.LeakyBucket),
}

// After a quiet moment all processes and the store agree, and the sum is what was admitted.
func TestEventualAgrees(t *testing.T) {
	for _, limit := range eventualLimits {
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			s.disturb = after(500 * time.Microsecond)
			all := eventualNodes(t, s, limit, sluice.FailClosed, 4)
			got := offer(t, all, 300, time.Second)
			here := 0
			for range 10 { // so that the views are kept until all have heard of all
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
				// What others may have spent is still guessed; it fades.
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

// A process that is alone is exact, also about what is spent while the store is being told, and while windows change.
func TestEventualAlone(t *testing.T) {
	for _, limit := range []sluice.Limit{
		sluice.PerSecond(1000).With(sluice.FixedWindow), {Count: 1000, Window: time.Second, Algorithm: sluice.FixedWindow, Align: sluice.AlignFirstHit},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			s.disturb = after(4 * time.Millisecond)
			l := eventualNodes(t, s, limit, sluice.FailClosed, 1)[0]
			toNextSecond()
			pause(5 * time.Millisecond)
			left := int64(1000)
			for start := time.Now(); time.Since(start) < 2900*time.Millisecond; pause(7 * time.Millisecond) {
				d := mustAllow(t, l, "k", 3)
				if d.Remaining > left {
					left = 1000 // the next window
				}
				if left -= 3; d.Remaining != left {
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

// Who has found the view of a key before it is forgotten spends nothing from it afterwards: nobody would report it.
func TestEventualForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, forget := range map[string]func(l *sluice.Limiter) error{
			"close": func(l *sluice.Limiter) error { return l.Close(t.Context()) },
			"reset": func(l *sluice.Limiter) error { return l.Reset(t.Context(), "k") },
			"idle":  func(*sluice.Limiter) error { pause(time.Second); return nil },
		} {
			l := eventualNodes(t, newFar(), sluice.PerHour(10), sluice.FailClosed, 1)[0]
			mustAllow(t, l, "k", 1)
			decide := sluice.View(l, sluice.Take{Rule: l.Rules()[0], Key: "k", Cost: 1})
			if !decide() {
				t.Errorf("%s: not decided here", name)
			}
			if err := forget(l); err != nil {
				t.Fatal(err)
			}
			if decide() {
				t.Errorf("%s: decided by a view that is gone", name)
			}
		}
	})
}

// A rule that charges denials tells the store of them.
func TestEventualChargesDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerHour(10).With(sluice.FixedWindow), Accuracy: sluice.Eventual, ChargeDenied: true})
		l := sluice.Must(sluice.NewRules(s, []*sluice.Rule{rule}))
		for range 30 {
			mustAllow(t, l, "k", 1)
		}
		pause(time.Second)
		synctest.Wait()
		more, out := sluice.Must(sluice.PerHour(100).With(sluice.FixedWindow).Build()), make([]sluice.Decision, 1)
		if err := s.Store.Apply(t.Context(), []sluice.Take{{Rule: rule, Limit: more, Key: "k"}}, out); err != nil || out[0].Remaining != 70 {
			t.Errorf("%d left of 100 after 30, most of them denied (%v)", out[0].Remaining, err)
		}
	})
}

// One busy key costs a few calls a second, however much is asked for, and a rare one no more than with Exact.
func TestEventualCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		s.disturb = after(500 * time.Microsecond)
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
		synctest.Wait() // the exchange has come to rest, else the bubble would not end
	})
}

// A process that dies takes with it only what it had not reported.
func TestEventualCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		const limit = 1000
		all := eventualNodes(t, s, sluice.PerHour(limit).With(sluice.FixedWindow), sluice.FailClosed, 2)
		dies := all[0]
		var gone atomic.Bool
		s.disturb = func(_ context.Context, k *sluice.Take) error {
			if gone.Load() && k.Rule == dies.Rules()[0] {
				return errAway
			}
			return nil
		}
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
		if admitted > known || admitted < known-200 { // the dead one is believed to go on for a while
			t.Errorf("the other admitted %d of %d left", admitted, known)
		}
	})
}

// While the store is away a process goes on for a moment and then by its fail mode, and reports what it spent when the
// store is back: once, though its report may have arrived the first time.
func TestEventualStoreAway(t *testing.T) {
	for mode, want := range map[sluice.FailMode]sluice.Source{
		sluice.FailLocal: sluice.SourceLocal, sluice.FailOpen: sluice.SourceOpen, sluice.FailClosed: sluice.SourceClosed,
	} {
		for _, limit := range eventualLimits {
			synctest.Test(t, func(t *testing.T) {
				s := newFar()
				var away atomic.Bool
				s.disturb = func(context.Context, *sluice.Take) error {
					if away.Load() {
						return errAway
					}
					return nil
				}
				l := eventualNodes(t, s, limit, mode, 1)[0]
				spend := func(n int) (here, local int64) {
					for range n {
						switch d := mustAllow(t, l, "k", 4); {
						case d.Source == want && d.Source == sluice.SourceLocal:
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
					t.Errorf("%d were admitted here while the store was away for 2 s, want those of half a second", during)
				}
				if sum := before + during + local; mode == sluice.FailLocal && (sum > 1000 || local == 0) {
					t.Errorf("%v: %d were admitted of 1000, %d of them locally", limit, sum, local)
				}
				away.Store(false)
				pause(10 * time.Second)
				synctest.Wait()
				if left := stored(t, s, l, "k"); left != 1000-before-during {
					t.Errorf("%v: the store has %d left, want %d", limit, left, 1000-before-during)
				}
				if d := mustAllow(t, l, "k", 1); d.Source != sluice.SourceStore {
					t.Errorf("%+v", d)
				}
			})
		}
	}
}

// A report whose answer is lost is told again: counted at most twice, never lost.
func TestEventualLostAnswers(t *testing.T) {
	for _, limit := range eventualLimits {
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			l := eventualNodes(t, s, limit, sluice.FailClosed, 1)[0]
			var lost int
			s.disturb = func(ctx context.Context, k *sluice.Take) error {
				if k.At == 0 || lost == 4 {
					return nil
				}
				lost++
				if err := s.Store.Apply(ctx, []sluice.Take{*k}, make([]sluice.Decision, 1)); err != nil {
					return err
				}
				return errAway
			}
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

// What a process spent is reported when its limiter is closed, and decided by the store from then on.
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

// Reservations are settled in the own count, and what it comes to is what the store hears.
func TestEventualIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range eventualLimits {
			s := newFar()
			l := eventualNodes(t, s, limit, sluice.FailClosed, 1)[0]
			here := 0
			for i := range 100 {
				r, err := l.Reserve(t.Context(), "k", 4)
				if err != nil || !r.Allowed {
					t.Fatalf("%+v %v", r, err)
				}
				if r.Source == sluice.SourceEventual {
					here++
				}
				if err := r.Settle(t.Context(), []int64{0, 1, 9}[i%3]); err != nil {
					t.Fatal(err)
				}
				pause(7 * time.Millisecond)
			}
			want := int64(1000 - 33*10) // and the last is settled at 0
			if d := mustPeek(t, l, "k"); d.Remaining < want-1 || d.Remaining > want {
				t.Errorf("%v: %d are believed to be left, want %d", limit, d.Remaining, want)
			}
			pause(time.Second)
			if left := stored(t, s, l, "k"); here < 90 || left < want-1 || left > want {
				t.Errorf("%v: %d left, want %d; %d answered here", limit, left, want, here)
			}
		}
	})
}

// Wait, AllowUpTo and costs do what they do at the store.
func TestEventualVerbs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		l := eventualNodes(t, s, sluice.PerSecond(10).WithBurst(5), sluice.FailClosed, 1)[0]
		mustAllow(t, l, "k", 1)
		if d, err := l.AllowUpTo(t.Context(), "k", 1, 100); err != nil || d.Granted != 4 || d.Source != sluice.SourceEventual {
			t.Errorf("%+v %v", d, err)
		}
		if d := mustAllow(t, l, "k", 1); d.Allowed || d.RetryAfter != 100*time.Millisecond {
			t.Errorf("%+v", d)
		}
		if d := mustAllow(t, l, "k", 6); !d.Never {
			t.Errorf("%+v", d)
		}
		start := time.Now()
		for range 10 {
			if err := l.Wait(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took < 900*time.Millisecond || took > 1100*time.Millisecond {
			t.Errorf("ten at ten a second took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := l.Wait(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if _, err := l.Decide(t.Context(), []sluice.Take{{Rule: l.Rules()[0], Key: "k", Cost: -1}}, make([]sluice.Decision, 1)); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%v", err)
		}
	})
}

// An operator's reset and block are known here at once and elsewhere after an exchange.
func TestEventualResetAndBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range eventualLimits {
			s := newFar()
			all := eventualNodes(t, s, limit, sluice.FailClosed, 2)
			both := func(want bool, why string) {
				t.Helper()
				for i, l := range all {
					if d := mustAllow(t, l, "k", 1); d.Allowed != want {
						t.Errorf("%v: %s: process %d: %+v", limit, why, i, d)
					}
				}
			}
			both(true, "fresh")
			mustAllow(t, all[0], "k", 900)
			both(true, "spent most")
			if err := all[0].Block(t.Context(), "k", 3*time.Second); err != nil {
				t.Fatal(err)
			}
			if d := mustAllow(t, all[0], "k", 1); d.Allowed {
				t.Errorf("%v: blocked: %+v", limit, d)
			}
			for range 28 {
				pause(100 * time.Millisecond)
				mustPeek(t, all[1], "k")
			}
			both(false, "blocked")
			pause(50 * time.Millisecond)
			mustPeek(t, all[1], "k")
			pause(350 * time.Millisecond)
			both(true, "the block has ended")
			if err := all[1].Reset(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			pause(250 * time.Millisecond)
			for i, l := range all {
				if d := mustAllow(t, l, "k", 1); d.Remaining < 990 {
					t.Errorf("%v: reset: process %d: %+v", limit, i, d)
				}
			}
		}
	})
}

// In a call with rules of all accuracies a denial leaves everything as it was, but for rules that charge denials.
func TestEventualAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		l := eventualNodes(t, s, sluice.PerHour(1000).With(sluice.FixedWindow), sluice.FailClosed, 1)[0]
		hour := func(name string, n int64, a sluice.Accuracy, charge bool) *sluice.Rule {
			return mustRule(t, sluice.Rule{Name: name, Limit: sluice.PerHour(n).With(sluice.FixedWindow), Accuracy: a, ChargeDenied: charge})
		}
		for _, denies := range []sluice.Accuracy{sluice.Exact, sluice.Lease, sluice.Eventual} {
			key := []string{"exact", "lease", "eventual"}[denies]
			var takes []sluice.Take
			for _, r := range []*sluice.Rule{
				l.Rules()[0], hour("few"+key, 150, denies, false), hour("leased", 1000, sluice.Lease, false),
				hour("exact", 1000, sluice.Exact, false), hour("all", 1000, sluice.Eventual, true), hour("all2", 1000, sluice.Exact, true),
			} {
				takes = append(takes, sluice.Take{Rule: r, Key: key, Cost: 1})
			}
			out := make([]sluice.Decision, len(takes))
			allowed := 0
			for range 300 {
				ok, err := l.Decide(t.Context(), takes, out)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					allowed++
				}
				pause(time.Millisecond)
			}
			pause(3 * time.Second)
			synctest.Wait()
			if allowed != 150 {
				t.Errorf("%s: %d allowed", key, allowed)
			}
			for i := range takes {
				takes[i].Cost = 0
			}
			if err := s.Store.Apply(t.Context(), takes, out); err != nil {
				t.Fatal(err)
			}
			for i, want := range []int64{850, 0, 850, 850, 700, 700} {
				if out[i].Remaining != want {
					t.Errorf("%s: %s has %d left, want %d", key, takes[i].Rule.Name, out[i].Remaining, want)
				}
			}
		}
	})
}

// A store in the process decides all itself.
func TestEventualInOneProcess(t *testing.T) {
	rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerHour(5), Accuracy: sluice.Eventual})
	l := sluice.Must(sluice.NewRules(memstore.New(), []*sluice.Rule{rule}))
	for i := range 10 {
		if d := mustAllow(t, l, "k", 1); d.Allowed != (i < 5) || d.Source != sluice.SourceStore {
			t.Errorf("%+v", d)
		}
	}
	for _, limit := range []sluice.Limit{
		sluice.PerSecond(5).With(sluice.SlidingLog), sluice.PerSecond(5).With(sluice.LeakyQueue),
		{Count: 60, Window: time.Minute, Algorithm: sluice.SlidingCounter, SubWindows: 6},
		{Count: 60, Window: time.Minute, Refill: sluice.RefillInterval},
		sluice.PerSecond(5).With(sluice.FixedWindow).WithSoft(1, time.Second),
	} {
		if _, err := sluice.NewRule(sluice.Rule{Name: "r", Limit: limit, Accuracy: sluice.Eventual}); err == nil {
			t.Errorf("%v can be eventual", limit)
		}
	}
}

// A decision that is made here allocates nothing.
func TestEventualAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range eventualLimits {
			l := eventualNodes(t, newFar(), limit, sluice.FailClosed, 1)[0]
			mustAllow(t, l, "k", 1)
			if n := testing.AllocsPerRun(500, func() { mustAllow(t, l, "k", 1) }); n != 0 {
				t.Errorf("%v: %v allocations", limit, n)
			}
		}
	})
}

// Whatever comes when, all processes together stay within the bound, and the store counts what they admitted.
func TestEventualBound(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		limit := rapid.SampledFrom([]sluice.Limit{
			sluice.PerSecond(100).With(sluice.FixedWindow), sluice.PerSecond(100).WithBurst(50), sluice.PerMinute(600).With(sluice.FixedWindow),
		}).Draw(r, "limit")
		n := rapid.IntRange(1, 5).Draw(r, "processes")
		seed := rapid.Uint64().Draw(r, "seed")
		delay := time.Duration(rapid.IntRange(0, 4_900).Draw(r, "delay")) * time.Microsecond // a take, of which a report has two
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			s.disturb = after(delay)
			all := eventualNodes(t, s, limit, sluice.FailClosed, n)
			checkBound(t, r, all, limit, seed)
		})
	})
}

// checkBound offers bursts and lulls and looks at each window or, of a bucket, at each interval.
func checkBound(t *testing.T, r *rapid.T, all []*sluice.Limiter, limit sluice.Limit, seed uint64) {
	toNextSecond()
	random := rand.New(rand.NewPCG(seed, 1))
	staleness := sluice.Staleness(sluice.DefaultBudget)
	var asked, admitted []time.Duration
	for i := 0; i < 1000; i++ {
		asked = append(asked, time.Duration(time.Now().UnixNano()))
		if mustAllow(t, all[random.IntN(len(all))], "k", 1).Allowed {
			admitted = append(admitted, time.Duration(time.Now().UnixNano()))
		}
		switch {
		case random.IntN(100) == 0:
			pause(time.Duration(random.Int64N(int64(time.Second))))
		case random.IntN(2) == 0:
			pause(time.Duration(random.Int64N(int64(4 * time.Millisecond))))
		}
	}
	offered := 0 // the most in any time as long as the staleness
	for from, to := 0, 0; to < len(asked); to++ {
		for asked[to]-asked[from] > staleness {
			from++
		}
		offered = max(offered, to-from+1)
	}
	got := &load{at: admitted}
	if limit.Algorithm == sluice.TokenBucket {
		if worst := got.burst(limit.Rate()); worst > float64(limit.Burst)+float64(offered) {
			r.Fatalf("a burst of %.0f, of %d and %d offered in %v", worst, limit.Burst, offered, staleness)
		}
		return
	}
	for w, n := range got.windows(limit.Window) {
		if n > limit.Count+int64(offered) {
			r.Fatalf("window %v admitted %d, of %d and %d offered in %v", w, n, limit.Count, offered, staleness)
		}
	}
}
