package sluice_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
)

// reserved charges 6 of 10 with Decide and returns the take with its receipt.
func reserved(t *testing.T, l *sluice.Limiter, rule *sluice.Rule) sluice.Take {
	t.Helper()
	takes, out := []sluice.Take{{Rule: rule, Key: "k", Cost: 6}}, make([]sluice.Decision, 1)
	if ok, err := l.Decide(background, takes, out); err != nil || !ok {
		t.Fatal(ok, err)
	}
	return sluice.Take{Rule: rule, Key: "k", Receipt: out[0].Receipt}
}

func TestSettleOnce(t *testing.T) {
	for _, tt := range []struct {
		actual, remains int64
	}{{0, 10}, {2, 8}, {6, 4}, {9, 1}, {15, 0}} {
		t.Run(fmt.Sprint(tt.actual), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, sluice.Per(10, 24*time.Hour).WithAlgorithm(sluice.FixedWindow))
				take := reserved(t, l, l.Rules()[0])
				take.Cost = tt.actual - 6
				for i := range 3 {
					ok, _, err := l.SettleOnce(background, "id", 5*time.Minute, []sluice.Take{take})
					if err != nil || ok != (i == 0) {
						t.Errorf("settlement %d: %t, %v", i+1, ok, err)
					}
					if got := remaining(t, l, "k"); got != tt.remains {
						t.Errorf("%d remain after settlement %d, want %d", got, i+1, tt.remains)
					}
					<-time.After(time.Minute + 50*time.Second) // longer than stores remember idempotency IDs
				}
			})
		})
	}
}

// Of many concurrent settlements with the same ID, exactly one is applied.
func TestSettleOnceConcurrently(t *testing.T) {
	l := newLimiter(t, sluice.Per(10, 24*time.Hour).WithAlgorithm(sluice.FixedWindow))
	take := reserved(t, l, l.Rules()[0])
	take.Cost = -3
	var settled atomic.Int64
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			ok, _, err := l.SettleOnce(background, "id", sluice.MaxSettle, []sluice.Take{take})
			if err != nil {
				t.Error(err)
			}
			if ok {
				settled.Add(1)
			}
		})
	}
	all.Wait()
	if n, left := settled.Load(), remaining(t, l, "k"); n != 1 || left != 7 {
		t.Errorf("%d settled it and %d remain, want 1 and 7", n, left)
	}
}

func TestSettleOnceRefuses(t *testing.T) {
	l := newLimiter(t, sluice.PerMinute(10))
	take := reserved(t, l, l.Rules()[0])
	take.Cost = -1
	noAt := take
	noAt.Receipt, noAt.Cost = 0, 1
	for name, call := range map[string]func() (bool, int64, error){
		"no id":       func() (bool, int64, error) { return l.SettleOnce(background, "", time.Minute, []sluice.Take{take}) },
		"no duration": func() (bool, int64, error) { return l.SettleOnce(background, "a", 0, []sluice.Take{take}) },
		"too long":    func() (bool, int64, error) { return l.SettleOnce(background, "a", 3*time.Hour, []sluice.Take{take}) },
		"no At":       func() (bool, int64, error) { return l.SettleOnce(background, "a", time.Minute, []sluice.Take{noAt}) },
		"no rule":     func() (bool, int64, error) { return l.SettleOnce(background, "a", time.Minute, make([]sluice.Take, 1)) },
	} {
		if ok, _, err := call(); ok || !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
	}
	if ok, _, err := l.SettleOnce(background, "a", time.Minute, []sluice.Take{take}); !ok || err != nil {
		t.Errorf("the ID of an invalid settlement was stored: %t, %v", ok, err)
	}
}
