package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

func acquire(t *testing.T, l *sluice.Limiter, key string) (*sluice.Permit, sluice.Decision) {
	t.Helper()
	slot, d, err := l.Acquire(t.Context(), key)
	if err != nil || d.Allowed != (slot != nil) {
		t.Fatalf("permit %v, %+v, %v", slot != nil, d, err)
	}
	return slot, d
}

// inFlight returns the number of permits that the store counts.
func inFlight(t *testing.T, l *sluice.Limiter, key string) int64 {
	t.Helper()
	d, err := l.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return d.Limit - d.Remaining
}

func TestSlotIsHeldUntilReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		l := sluice.Must(sluice.New(store, "r", sluice.Concurrent(2)))
		a, _ := acquire(t, l, "k")
		b, _ := acquire(t, l, "k")
		for range 40 { // ten minutes
			pause(15 * time.Second)
			if slot, d := acquire(t, l, "k"); slot != nil || d.RetryAfter > 30*time.Second || d.RetryAfter <= 0 {
				t.Fatalf("a third: %+v", d)
			}
		}
		synctest.Wait() // no renewal may be in progress, which would delay the release
		a.Release(t.Context())
		a.Release(t.Context())
		if n := inFlight(t, l, "k"); n != 1 {
			t.Fatalf("%d in flight, want 1", n)
		}
		c, _ := acquire(t, l, "k")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b.Release(ctx) // releases although ctx is done
		c.Release(ctx)
		var none *sluice.Permit
		none.Release(ctx)
		if n := inFlight(t, l, "k"); n != 0 {
			t.Fatalf("%d in flight, want none", n)
		}
	})
}

// The permits of a crashed process expire one TTL after their last renewal, and not earlier.
func TestSlotOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sluice.Must(sluice.New(memstore.New(), "r", sluice.Concurrent(1).WithPermitTTL(3*time.Second)))
		out := make([]sluice.Decision, 1) // acquired without Acquire, and so never renewed
		if ok, err := l.Decide(t.Context(), []sluice.Take{{Rule: l.Rules()[0], Key: "k", Cost: 1}}, out); !ok || err != nil {
			t.Fatal(ok, err)
		}
		pause(3*time.Second - time.Microsecond)
		if slot, _ := acquire(t, l, "k"); slot != nil {
			t.Fatal("free before the lease ended")
		}
		pause(time.Microsecond)
		slot, _ := acquire(t, l, "k")
		if slot == nil {
			t.Fatal("not free when the lease ended")
		}
		slot.Release(t.Context())
	})
}

// A limiter may have rate limits as well: all or nothing.
func TestAcquireSeveral(t *testing.T) {
	rules := []*sluice.Rule{
		mustRule(t, sluice.Rule{Name: "rate", Limit: sluice.PerHour(3)}),
		mustRule(t, sluice.Rule{Name: "flight", Limit: sluice.Concurrent(2)}),
	}
	store := memstore.New()
	l := sluice.Must(sluice.NewWithRules(store, rules))
	a, _ := acquire(t, l, "k")
	b, _ := acquire(t, l, "k")
	if c, d := acquire(t, l, "k"); c != nil || d.Limit != 2 {
		t.Fatalf("a third in flight: %+v", d)
	}
	a.Release(t.Context())
	b.Release(t.Context())
	c, d := acquire(t, l, "k") // the take denied by the concurrency limit was not charged to the rate limit
	if c == nil || d.Remaining != 0 {
		t.Fatalf("%+v", d)
	}
	c.Release(t.Context())
	if c, d := acquire(t, l, "k"); c != nil || d.Limit != 3 {
		t.Fatalf("a fourth an hour: %+v", d)
	}
	for _, rule := range rules[1:] {
		one := sluice.Must(sluice.NewWithRules(store, []*sluice.Rule{rule}))
		if n := inFlight(t, one, "k"); n != 0 {
			t.Errorf("%d in flight, want none", n)
		}
	}
	if _, _, err := sluice.Must(sluice.NewWithRules(memstore.New(), nil)).Acquire(t.Context(), "k"); !errors.Is(err, sluice.ErrInvalid) {
		t.Errorf("without rules: %v", err)
	}
}

// Denials of concurrency limits are not cached, because a permit may be released at any time.
func TestSlotDenialIsNotRemembered(t *testing.T) {
	l := sluice.Must(sluice.New(newFar(), "r", sluice.Concurrent(1)))
	for range 10 {
		slot, _ := acquire(t, l, "k")
		if slot == nil {
			t.Fatal("denied although no request is in flight")
		}
		if other, _ := acquire(t, l, "k"); other != nil {
			t.Fatal("two of one")
		}
		slot.Release(t.Context())
	}
}

// During local fallback, permits are counted in this instance, including those acquired at the store. After recovery
// the store has all of them.
func TestSlotsWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		var away atomic.Bool
		s.disturb(func(context.Context, *sluice.Take) error {
			if away.Load() {
				return errAway
			}
			return nil
		})
		l := sluice.Must(sluice.New(s, "r", sluice.Concurrent(3)))
		first, _ := acquire(t, l, "k")
		away.Store(true)
		second, d := acquire(t, l, "k")
		if second == nil || d.Source != sluice.SourceFailLocal || d.Remaining != 1 {
			t.Fatalf("%+v", d)
		}
		third, _ := acquire(t, l, "k")
		if fourth, d := acquire(t, l, "k"); fourth != nil || d.Source != sluice.SourceFailLocal {
			t.Fatalf("a fourth: %+v", d)
		}
		pause(2 * time.Minute) // much longer than the TTL
		synctest.Wait()        // no renewal is in progress
		third.Release(t.Context())
		if third, _ = acquire(t, l, "k"); third == nil {
			t.Fatal("a permit released locally is not free locally")
		}
		away.Store(false)
		pause(11 * time.Second) // permits are renewed at the store
		synctest.Wait()
		if fourth, _ := acquire(t, l, "k"); fourth != nil {
			t.Fatal("a fourth")
		}
		if n := inFlight(t, l, "k"); n != 3 {
			t.Fatalf("%d in flight by the store's view, want 3", n)
		}
		for _, slot := range []*sluice.Permit{first, second, third} {
			slot.Release(t.Context())
		}
		if n := inFlight(t, l, "k"); n != 0 {
			t.Fatalf("%d in flight by the store's view, want none", n)
		}
		away.Store(true) // the local count agrees
		for i := range 4 {
			if slot, _ := acquire(t, l, "k"); (slot != nil) != (i < 3) {
				t.Fatalf("permit %d: %v", i, slot != nil)
			}
		}
	})
}

// A release that fails at the store is retried.
func TestReleaseIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		var away atomic.Bool
		s.disturb(func(context.Context, *sluice.Take) error {
			if away.Load() {
				return errAway
			}
			return nil
		})
		l := sluice.Must(sluice.New(s, "r", sluice.Concurrent(1)))
		slot, _ := acquire(t, l, "k")
		away.Store(true)
		slot.Release(t.Context())
		away.Store(false)
		if n := inFlight(t, l, "k"); n != 1 {
			t.Fatalf("%d in flight, want 1", n)
		}
		pause(4 * time.Second)
		if n := inFlight(t, l, "k"); n != 0 {
			t.Fatalf("%d in flight, want none", n)
		}
	})
}

// A permit that is released during its renewal is free as soon as the renewal ends.
func TestReleaseWhileRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		s.disturb(after(5 * time.Millisecond))
		l := sluice.Must(sluice.New(s, "r", sluice.Concurrent(1)))
		slot, _ := acquire(t, l, "k")
		pause(10*time.Second + time.Millisecond) // the renewal is in progress
		slot.Release(t.Context())
		pause(20 * time.Millisecond)
		if n := inFlight(t, l, "k"); n != 0 {
			t.Fatalf("%d in flight, want none", n)
		}
	})
}

// Permits of many keys are acquired and released at any time, also during renewals, at a store that sometimes fails.
// The store never counts more permits than the limit, and finally none.
func TestSlotsComeAndGo(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			s := newFar()
			s.disturb(func(ctx context.Context, _ *sluice.Take) error {
				if rand.IntN(20) == 0 {
					return errAway
				}
				pause(time.Duration(rand.IntN(3)) * time.Millisecond) // so that other goroutines run in between
				return nil
			})
			lease := time.Duration(1+rng.IntN(5)) * 100 * time.Millisecond
			rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.Concurrent(3).WithPermitTTL(lease), OnFailure: sluice.FailClosed})
			l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}))
			for i := range 12 {
				own := rand.New(rand.NewPCG(seed, uint64(i)))
				go func() {
					for range 30 {
						slot, _ := acquire(t, l, fmt.Sprint(own.IntN(2)))
						pause(time.Duration(own.IntN(2*int(lease/time.Millisecond))) * time.Millisecond)
						slot.Release(context.Background())
					}
				}()
			}
			direct := sluice.Must(sluice.NewWithRules(s.Store, []*sluice.Rule{rule}))
			for range 100 {
				pause(lease / 7)
				for _, key := range []string{"0", "1"} {
					if n := inFlight(t, direct, key); n > 3 {
						t.Fatalf("%d in flight of 3", n)
					}
				}
			}
			pause(time.Hour)
			for _, key := range []string{"0", "1"} {
				if n := inFlight(t, direct, key); n != 0 {
					t.Errorf("seed %d: %d are left in flight", seed, n)
				}
			}
		})
	}
}

// Settling releases the permit once and whole, whatever the actual cost.
func TestSettleGivesSlotsBack(t *testing.T) {
	l := sluice.Must(sluice.New(memstore.New(), "r", sluice.Concurrent(3)))
	for _, actual := range []int64{1, 2, 5, 0} {
		other := sluice.Must(l.Reserve(t.Context(), "k", 1))
		r := sluice.Must(l.Reserve(t.Context(), "k", 2))
		for range 2 {
			if err := r.Settle(t.Context(), actual); err != nil || inFlight(t, l, "k") != 1 {
				t.Errorf("settled at %d: %d in flight, want 1; %v", actual, inFlight(t, l, "k"), err)
			}
		}
		if err := other.Cancel(t.Context()); err != nil || inFlight(t, l, "k") != 0 {
			t.Errorf("%d in flight, want 0; %v", inFlight(t, l, "k"), err)
		}
	}
}

func TestRulesRefuseForSlots(t *testing.T) {
	for want, rule := range map[string]sluice.Rule{
		"Accuracy: a concurrency limit":    {Name: "r", Limit: sluice.Concurrent(1), Accuracy: sluice.AccuracyLease},
		"Accuracy: a concurrency limit is": {Name: "r", Limit: sluice.Concurrent(1), Accuracy: sluice.AccuracyEventual},
		"ChargeDenied is not supported":    {Name: "r", Limit: sluice.Concurrent(1), ChargeDenied: true},
	} {
		if _, err := sluice.NewRule(rule); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
