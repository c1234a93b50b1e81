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

// deafStore is a far store whose operator functions are disturbed, too.
type deafStore struct{ *farStore }

func (s deafStore) Reset(ctx context.Context, b sluice.Bucket) error {
	if err := s.disturbed(ctx, nil); err != nil {
		return err
	}
	return s.Store.Reset(ctx, b)
}

func (s deafStore) Block(ctx context.Context, b sluice.Bucket, d time.Duration) error {
	if err := s.disturbed(ctx, nil); err != nil {
		return err
	}
	return s.Store.Block(ctx, b, d)
}

// Calls without a fail mode are bounded, too: calls for requests by the store timeout, calls for operators by 1 s.
func TestBudgetOfTheRest(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(l *sluice.Limiter, r *sluice.Reservation) error
		want time.Duration
	}{
		"settle": {func(_ *sluice.Limiter, r *sluice.Reservation) error { return r.Settle(background, 1) }, sluice.DefaultStoreTimeout},
		"cancel": {func(_ *sluice.Limiter, r *sluice.Reservation) error { return r.Cancel(background) }, sluice.DefaultStoreTimeout},
		"escalate": {func(l *sluice.Limiter, _ *sluice.Reservation) error {
			_, err := l.Escalate(background, "k", sluice.Escalation{Blocks: []time.Duration{time.Minute}, ForgetAfter: time.Hour})
			return err
		}, sluice.DefaultStoreTimeout},
		"reset": {func(l *sluice.Limiter, _ *sluice.Reservation) error { return l.Reset(background, "k") }, time.Second},
		"block": {func(l *sluice.Limiter, _ *sluice.Reservation) error { return l.Block(background, "k", time.Hour) }, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := deafStore{newFar()}
				rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerHour(100)})
				l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}))
				t.Cleanup(func() { _ = l.Close(background) }) // stops the retries of the settlement
				r, err := l.Reserve(background, "k", 5)
				if err != nil || !r.Allowed {
					t.Fatal(r, err)
				}
				s.disturb(hangs)
				start := time.Now()
				err = c.do(l, r)
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != c.want {
					t.Errorf("%v after %v, want %v", err, took, c.want)
				}
			})
		})
	}
}

// While a shard's breaker is open, settlements are not sent. They stay pending and are sent after it recovers.
func TestSettleHeedsTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		var away atomic.Bool
		s.disturb(func(context.Context, *sluice.Take) error {
			if away.Load() {
				return errAway
			}
			return nil
		})
		l := farLimiter(t, s, sluice.FailOpen)
		r := sluice.Must(l.Reserve(t.Context(), "k", 5))
		away.Store(true)
		for range 50 {
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		before := s.calls.Load()
		if err := r.Cancel(t.Context()); !errors.Is(err, sluice.ErrUnavailable) || s.calls.Load() != before {
			t.Errorf("%v after %d calls", err, s.calls.Load()-before)
		}
		away.Store(false)
		pause(time.Minute)
		before = s.calls.Load()
		if err := r.Cancel(t.Context()); err != nil || s.calls.Load() != before {
			t.Errorf("%v after %d calls, want none: it was sent before", err, s.calls.Load()-before)
		}
		if d := sluice.Must(l.Peek(t.Context(), "k")); d.Remaining != d.Limit {
			t.Errorf("%d of %d remain after the reservation was cancelled", d.Remaining, d.Limit)
		}
	})
}

// A reset takes effect in its own instance at once: for the deny cache and for local fallback.
func TestResetIsSeenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerHour(2).WithAlgorithm(sluice.FixedWindow)})
		l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}))
		allowed := func() (n int) {
			for range 5 {
				if d := sluice.Must(l.Allow(t.Context(), "k")); d.Allowed {
					n++
				}
			}
			return n
		}
		if n := allowed(); n != 2 {
			t.Fatalf("%d of 2 allowed", n)
		}
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if n := allowed(); n != 2 {
			t.Errorf("%d of 2 allowed after a reset", n)
		}
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		s.disturb(refuses)
		if n := allowed(); n != 2 {
			t.Errorf("%d of 2 allowed after a reset, without the store", n)
		}
		s.disturb(nil)
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if n := allowed(); n != 2 {
			t.Errorf("%d of 2 allowed after a reset, after recovery: usage admitted in between was charged", n)
		}
	})
}

// Buckets of rules that are not the limiter's are passed by the caller, and may be invalid.
func TestBuckets(t *testing.T) {
	s := newFar()
	l := sluice.Must(sluice.NewWithRules(s, nil))
	rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerHour(2)})
	take, out := []sluice.Take{{Rule: rule, Key: "k", HashTag: "s", Cost: 2}}, make([]sluice.Decision, 1)
	for range 3 {
		if ok, err := l.Decide(background, take, out); !ok || err != nil {
			t.Fatal(out, err)
		}
		if err := l.ResetBuckets(background, take[0].Bucket()); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.BlockBuckets(background, time.Hour, take[0].Bucket()); err != nil {
		t.Fatal(err)
	}
	if ok, err := l.Decide(background, take, out); ok || err != nil {
		t.Error("allowed though blocked", err)
	}
	for _, wrong := range []sluice.Bucket{{Key: "k"}, {Rule: &sluice.Rule{Name: "raw"}}, {Rule: rule, Limit: &sluice.Limit{}}} {
		if err := l.ResetBuckets(background, wrong); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// An instance that blocks a key stops using its lease of the key.
func TestBlockEndsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerHour(100_000).WithAlgorithm(sluice.FixedWindow), Accuracy: sluice.AccuracyLease})
		l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}))
		leased := false
		for range 1000 {
			d := sluice.Must(l.Allow(t.Context(), "k"))
			leased = leased || d.Source == sluice.SourceLease
			pause(time.Millisecond)
		}
		if !leased {
			t.Fatal("nothing was leased")
		}
		if err := l.Block(t.Context(), "k", time.Minute); err != nil {
			t.Fatal(err)
		}
		if d := sluice.Must(l.Allow(t.Context(), "k")); d.Allowed {
			t.Errorf("allowed though blocked: %+v", d)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
