package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// shaky is a far store whose calls for some takes fail, before or after they arrive.
type shaky struct {
	*farStore
	away  atomic.Bool  // no call arrives
	lost  atomic.Int64 // number of replies to settlements to lose
	ids   atomic.Int64 // number of replies to claims of a settlement's ID to lose
	sends atomic.Int64 // number of settlements that arrived
}

func newShaky() *shaky { return &shaky{farStore: newFar()} }

func (s *shaky) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	if s.away.Load() {
		return errAway
	}
	if err := s.farStore.Apply(ctx, takes, out); err != nil {
		return err
	}
	for i := range takes {
		if takes[i].Receipt != 0 {
			s.sends.Add(1)
			if s.lost.Add(-1) >= 0 {
				return errAway
			}
		}
		if takes[i].Rule.Name == "\x00settled" && s.ids.Add(-1) >= 0 {
			return errAway
		}
	}
	return nil
}

// perSecond returns a limit of 1 per second with a burst of 10.
func perSecond() sluice.Limit { return sluice.PerSecond(1).WithBurst(10) }

func shakyLimiter(t *testing.T, s *shaky, limit sluice.Limit, opts ...sluice.Option) *sluice.Limiter {
	t.Helper()
	l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{mustRule(t, sluice.Rule{Name: "r", Limit: limit})}, opts...))
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// left returns the remaining quota at the store, without the local state of the instance.
func (s *shaky) left(t *testing.T, l *sluice.Limiter, key string) int64 {
	t.Helper()
	return stored(t, s.farStore, l, key)
}

// Reserving 5 and settling at 10 after 5 s, 200 times, at 1 per second with a burst of 10: 2,000 take 1,990 s.
func TestSettledLateIsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, perSecond())
		began := time.Now()
		for range 200 {
			r := sluice.Must(l.Reserve(t.Context(), "k", 5))
			for ; !r.Allowed; r = sluice.Must(l.Reserve(t.Context(), "k", 5)) {
				pause(r.RetryAfter)
			}
			pause(5 * time.Second)
			if err := r.Settle(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 1990*time.Second {
			t.Errorf("2,000 were used in %v, want 1,990 s", took)
		}
	})
}

// 200 sessions, each with an estimate of 10,000, a cost of 1,000 and a duration of 10 s, at 60,000 per minute. An exact
// simulation admits 36,000 per minute, and no interval exceeds burst + rate × length.
func TestSettledSessions(t *testing.T) {
	for _, tt := range []struct {
		burst, estimate int64
		lasts           time.Duration
		want            float64 // admitted rate / limit rate in the exact simulation
	}{
		{60_000, 10_000, 10 * time.Second, 0.6},
		{100_000, 10_000, 10 * time.Second, 1},
		{60_000, 5_000, 10 * time.Second, 1},
		{60_000, 10_000, 2 * time.Second, 1},
	} {
		now := time.UnixMicro(1_800_000_000_000_000)
		store := sluice.Must(memstore.Open(memstore.Config{Now: func() time.Time { return now }}))
		l := sluice.Must(sluice.New(store, "r", sluice.PerMinute(60_000).WithBurst(tt.burst)))
		type session struct {
			ends time.Time
			r    *sluice.Reservation
		}
		var out []session // by end time
		waiting, start, used := 200, now, int64(0)
		const actual, warmUp, length = 1_000, 3 * time.Minute, 6 * time.Minute
		level, at, over := 0.0, now, 0.0 // usage as counted by a bucket with the rate and no burst
		for now.Sub(start) < length {
			for len(out) > 0 && !out[0].ends.After(now) {
				if err := out[0].r.Settle(background, actual); err != nil {
					t.Fatal(err)
				}
				out, waiting = out[1:], waiting+1
			}
			next := now.Add(time.Hour)
			if waiting > 0 {
				r := sluice.Must(l.Reserve(background, "k", tt.estimate))
				if r.Allowed {
					out, waiting = append(out, session{now.Add(tt.lasts), r}), waiting-1
					if now.Sub(start) >= warmUp {
						used += actual
					}
					level = max(0, level-now.Sub(at).Seconds()*1000) + actual
					at, over = now, max(over, level)
					continue
				}
				next = now.Add(r.RetryAfter)
			}
			if len(out) > 0 && out[0].ends.Before(next) {
				next = out[0].ends
			}
			now = next
		}
		share := float64(used) / (60_000 * (length - warmUp).Minutes())
		if share < 0.95*tt.want || share > 1.04*tt.want {
			t.Errorf("%+v: %.3f of the rate passed", tt, share)
		}
		if over > float64(tt.burst) {
			t.Errorf("%+v: %.0f beyond the rate in some interval", tt, over)
		}
	}
}

// A settlement whose reply is lost is sent again and applied once, whether it charges or refunds.
func TestSettleLostAnswers(t *testing.T) {
	for _, actual := range []int64{0, 3, 9} {
		for lost := range int64(3) {
			synctest.Test(t, func(t *testing.T) {
				s := newShaky()
				l := shakyLimiter(t, s, sluice.PerHour(10).WithAlgorithm(sluice.FixedWindow))
				r := sluice.Must(l.Reserve(t.Context(), "k", 5))
				s.lost.Store(lost)
				if err := r.Settle(t.Context(), actual); (err != nil) != (lost > 0) || err != nil && !errors.Is(err, sluice.ErrUnavailable) {
					t.Errorf("%d answers are lost: %v", lost, err)
				}
				pause(10 * time.Second)
				synctest.Wait()
				if n, left := s.sends.Load(), s.left(t, l, "k"); n != lost+1 || left != 10-actual {
					t.Errorf("%d answers are lost: sent %d times, %d left, want %d", lost, n, left, 10-actual)
				}
				if err := r.Settle(t.Context(), actual); err != nil || s.sends.Load() != lost+1 {
					t.Errorf("again: %v after %d", err, s.sends.Load())
				}
			})
		}
	}
}

// After an error a reservation can be settled again, and is applied once.
func TestSettleAgainAfterError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaky()
		l := shakyLimiter(t, s, perSecond())
		r := sluice.Must(l.Reserve(t.Context(), "k", 5))
		s.lost.Store(1)
		if err := r.Settle(t.Context(), 9); err == nil {
			t.Error("the reply was not lost")
		}
		if err := r.Settle(t.Context(), 9); err != nil { // before the limiter retries it
			t.Error(err)
		}
		pause(time.Second) // 1 is replenished
		if left := s.left(t, l, "k"); left != 2 {
			t.Errorf("%d left, want 2", left)
		}
	})
}

// A settlement that may have arrived is not retried after the store may have deleted its ID.
func TestSettleIsNotSentTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaky()
		l := shakyLimiter(t, s, sluice.PerHour(10).WithAlgorithm(sluice.FixedWindow))
		r := sluice.Must(l.Reserve(t.Context(), "k", 5))
		s.lost.Store(1)
		_ = r.Settle(t.Context(), 0)
		s.away.Store(true)
		pause(2 * time.Minute)
		s.away.Store(false)
		pause(2 * time.Minute)
		if err := r.Settle(t.Context(), 0); !errors.Is(err, sluice.ErrUnavailable) {
			t.Error(err)
		}
		if n, left := s.sends.Load(), s.left(t, l, "k"); n != 1 || left != 10 {
			t.Errorf("sent %d times, %d left", n, left)
		}
	})
}

// A call that claims a settlement's ID and gets no reply is retried.
func TestSettleOnceLostAnswers(t *testing.T) {
	for _, actual := range []int64{0, 9} {
		synctest.Test(t, func(t *testing.T) {
			s := newShaky()
			l := shakyLimiter(t, s, sluice.PerHour(10).WithAlgorithm(sluice.FixedWindow))
			take := reserved(t, l, l.Rules()[0])
			take.Cost = actual - 6
			s.ids.Store(2)
			s.lost.Store(2)
			ok, _, err := l.SettleOnce(t.Context(), "id", time.Minute, []sluice.Take{take})
			if ok || !errors.Is(err, sluice.ErrUnavailable) {
				t.Errorf("%t, %v", ok, err)
			}
			pause(20 * time.Second)
			if n, left := s.sends.Load(), s.left(t, l, "k"); n != 3 || left != 10-actual {
				t.Errorf("settled %d times, %d left, want %d", n, left, 10-actual)
			}
			if ok, _, err := l.SettleOnce(t.Context(), "id", time.Minute, []sluice.Take{take}); ok || err != nil {
				t.Errorf("again: %t, %v", ok, err)
			}
		})
	}
}

// A settlement is sent again after the first call did not reach the store. The second call does, and its reply is lost:
// the store has applied the second, which is retried until it gets a reply.
func TestSettleOnceSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaky()
		l := shakyLimiter(t, s, sluice.PerHour(100).WithAlgorithm(sluice.FixedWindow))
		take := reserved(t, l, l.Rules()[0])
		take.Cost = -6
		for _, fault := range []func(){func() { s.away.Store(true) }, func() { s.away.Store(false); s.ids.Store(1) }} {
			fault()
			if ok, _, err := l.SettleOnce(t.Context(), "id", time.Minute, []sluice.Take{take}); ok || !errors.Is(err, sluice.ErrUnavailable) {
				t.Errorf("%t, %v", ok, err)
			}
		}
		pause(10 * time.Second)
		if left := s.left(t, l, "k"); left != 100 {
			t.Errorf("%d left, want 100", left)
		}
		if ok, _, err := l.SettleOnce(t.Context(), "id", time.Minute, []sluice.Take{take}); ok || err != nil {
			t.Errorf("a third time: %t, %v", ok, err)
		}
	})
}

// While the store is unavailable settlements stay pending. After recovery each is sent once, even if the caller sends
// it again.
func TestSettleOnceStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaky()
		l := shakyLimiter(t, s, sluice.PerHour(100).WithAlgorithm(sluice.FixedWindow))
		settle := func(id string, take sluice.Take) (bool, error) {
			ok, _, err := l.SettleOnce(t.Context(), id, 10*time.Minute, []sluice.Take{take})
			return ok, err
		}
		var takes []sluice.Take
		for i := range 5 {
			takes = append(takes, reserved(t, l, l.Rules()[0]))
			takes[i].Cost = []int64{-6, -4, 3, 0, 1}[i]
		}
		s.away.Store(true)
		for i, take := range takes[:4] {
			for range 2 {
				if ok, err := settle(fmt.Sprint(i), take); ok || !errors.Is(err, sluice.ErrUnavailable) {
					t.Errorf("while the store is unavailable: %t, %v", ok, err)
				}
			}
		}
		pause(5 * time.Minute)
		s.away.Store(false)
		if ok, err := settle("2", takes[2]); err == nil && !ok {
			t.Error("the settlement was not made by the caller, which came first")
		}
		pause(30 * time.Second)
		if left := s.left(t, l, "k"); left != 100-5*6+6+4-3 {
			t.Errorf("%d left, want %d", left, 100-5*6+6+4-3)
		}
		for i, take := range takes {
			if ok, err := settle(fmt.Sprint(i), take); ok != (i == 4) || err != nil {
				t.Errorf("%d, again: %t, %v", i, ok, err)
			}
		}
		if left := s.left(t, l, "k"); left != 100-5*6+6+4-3-1 {
			t.Errorf("%d left", left)
		}
	})
}

// A pending settlement that has expired when the store recovers is not applied: the estimate stays charged.
func TestKeptSettlementsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaky()
		l := shakyLimiter(t, s, sluice.PerHour(100).WithAlgorithm(sluice.FixedWindow))
		take := reserved(t, l, l.Rules()[0])
		take.Cost = -6
		s.away.Store(true)
		_, _, _ = l.SettleOnce(t.Context(), "id", time.Minute, []sluice.Take{take})
		pause(time.Minute)
		s.away.Store(false)
		pause(time.Minute)
		if left := s.left(t, l, "k"); left != 94 {
			t.Errorf("%d left, want 94", left)
		}
	})
}

// Up to 10,000 settlements are pending. Callers can settle later ones after the store has recovered.
func TestKeptSettlementsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaky()
		l := shakyLimiter(t, s, sluice.PerDay(1_000_000).WithAlgorithm(sluice.FixedWindow))
		const kept, more = 10_000, 10
		var all []*sluice.Reservation
		for range kept + more {
			all = append(all, sluice.Must(l.Reserve(t.Context(), "k", 3)))
		}
		s.away.Store(true)
		for _, r := range all {
			if err := r.Cancel(t.Context()); !errors.Is(err, sluice.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		s.away.Store(false)
		pause(30 * time.Second)
		if left := s.left(t, l, "k"); left != 1_000_000-3*more {
			t.Errorf("%d left, want %d", left, 1_000_000-3*more)
		}
		for _, r := range all {
			if err := r.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if left := s.left(t, l, "k"); left != 1_000_000 {
			t.Errorf("%d left after all", left)
		}
	})
}

// Closing a limiter sends pending settlements, even while the circuit breaker is open.
func TestCloseSendsSettlements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaky()
		l := shakyLimiter(t, s, sluice.PerHour(10).WithAlgorithm(sluice.FixedWindow))
		r := sluice.Must(l.Reserve(t.Context(), "k", 5))
		s.away.Store(true)
		_ = r.Settle(t.Context(), 7)
		for range 100 { // the breaker opens after some of them
			mustAllow(t, l, "another", 1)
		}
		s.away.Store(false)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if left := s.left(t, l, "k"); left != 3 {
			t.Errorf("%d left, want 3", left)
		}
	})
}

// A reservation admitted by local fallback is settled locally, and the store is charged its actual cost.
func TestSettleLocalReservations(t *testing.T) {
	for _, limit := range []sluice.Limit{sluice.PerHour(100).WithAlgorithm(sluice.FixedWindow), sluice.Per(100, 1000*time.Hour)} {
		for actual, want := range map[int64]int64{0: 90, 4: 86, 30: 60, 70: 20} {
			synctest.Test(t, func(t *testing.T) {
				s := newShaky()
				l := shakyLimiter(t, s, limit)
				mustAllow(t, l, "k", 10)
				s.away.Store(true)
				r := sluice.Must(l.Reserve(t.Context(), "k", 30))
				if !r.Allowed || r.Source != sluice.SourceFailLocal || r.Remaining != 60 {
					t.Fatalf("%+v", r)
				}
				for range 2 {
					_ = r.Settle(t.Context(), actual)
				}
				if d := mustPeek(t, l, "k"); d.Source != sluice.SourceFailLocal || d.Remaining != want {
					t.Errorf("%v, settled at %d: %d left here, want %d", limit, actual, d.Remaining, want)
				}
				s.away.Store(false)
				pause(time.Minute)
				if d := mustAllow(t, l, "k", 1); d.Source != sluice.SourceStore { // this call reports the unreported usage of the key
					t.Fatalf("%+v", d)
				}
				if left := s.left(t, l, "k"); left != want-1 {
					t.Errorf("%v, settled at %d: the store has %d left, want %d", limit, actual, left, want-1)
				}
			})
		}
	}
}

// The part of a settlement that exceeds the maximum negative balance is reported as forgiven.
func TestForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, store := range []sluice.Store{memstore.New(), newShaky()} {
			var forgiven []string
			l := sluice.Must(sluice.New(store, "r", perSecond(), sluice.WithEvents(sluice.Events{
				OnForgiven: func(_ context.Context, k sluice.Take, n int64) {
					forgiven = append(forgiven, fmt.Sprint(k.Rule.Name, " ", k.Key, " ", n))
				},
			})))
			r := sluice.Must(l.Reserve(t.Context(), "k", 1))
			if err := r.Settle(t.Context(), 1_000_000); err != nil || fmt.Sprint(forgiven) != "[r k 996300]" {
				t.Errorf("%v, %v", forgiven, err)
			}
			takes := []sluice.Take{{Rule: l.Rules()[0], Key: "other", Cost: 1, Settles: true}}
			out := make([]sluice.Decision, 1)
			if ok, err := l.Decide(t.Context(), takes, out); !ok || err != nil {
				t.Fatal(ok, err)
			}
			late, ok := takes[0].Settlement(&out[0], 3701)
			if !ok {
				t.Fatal("there is nothing to settle")
			}
			if ok, n, err := l.SettleOnce(t.Context(), "id", time.Minute, []sluice.Take{late}); !ok || n != 1 || err != nil {
				t.Errorf("%t, %d forgiven, %v", ok, n, err)
			}
			if d := mustPeek(t, l, "other"); d.ResetAfter != 3700*time.Second {
				t.Errorf("%+v", d)
			}
		}
	})
}

// Reservations with the same idempotency ID are charged once and refunded once.
func TestReplayedReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, perSecond())
		rule := l.Rules()[0]
		if d := mustAllow(t, l, "k", 1); !d.Allowed {
			t.Fatal(d)
		}
		takes, out := []sluice.Take{{Rule: rule, Key: "k", Cost: 6, Settles: true, IdempotencyID: 7}}, make([]sluice.Decision, 1)
		for range 2 {
			if ok, err := l.Decide(t.Context(), takes, out); !ok || err != nil || out[0].Granted != 6 {
				t.Fatal(ok, err, out)
			}
		}
		back, _ := takes[0].Settlement(&out[0], 0)
		for range 2 {
			if err := l.Settle(t.Context(), []sluice.Take{back}); err != nil {
				t.Fatal(err)
			}
			if d := mustPeek(t, l, "k"); d.Remaining != 9 {
				t.Errorf("%d left, want 9", d.Remaining)
			}
		}
	})
}

// The unused part of a reservation returns to the lease while the instance holds it, otherwise to the store.
func TestLeaseRefunds(t *testing.T) {
	for _, limit := range []sluice.Limit{sluice.PerHour(1000).WithAlgorithm(sluice.FixedWindow), sluice.Per(1000, 1000*time.Hour)} {
		for _, returned := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := newFar()
				l := leaseNodes(t, s, limit, 1)[0]
				t.Cleanup(func() { _ = l.Close(context.Background()) })
				var out []*sluice.Reservation
				leased := 0
				for range 60 {
					r := sluice.Must(l.Reserve(t.Context(), "k", 5))
					if !r.Allowed {
						t.Fatalf("%+v", r)
					}
					if r.Source == sluice.SourceLease {
						leased++
					}
					out = append(out, r)
					pause(time.Millisecond)
				}
				if returned {
					pause(3 * time.Second)
				}
				calls := s.calls.Load()
				for _, r := range out {
					if err := r.Settle(t.Context(), 1); err != nil {
						t.Fatal(err)
					}
				}
				if n := s.calls.Load() - calls; !returned && n > 30 {
					t.Errorf("%v: %d calls for 60 refunds", limit, n)
				}
				if err := l.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if left := stored(t, s, l, "k"); left < 939 || left > 940 || leased < 30 {
					t.Errorf("%v, returned %t: %d left, want 940; %d were leased", limit, returned, left, leased)
				}
			})
		}
	}
}
