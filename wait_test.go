package sluice_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

func TestWaitPacesInOrder(t *testing.T) {
	for _, limit := range []sluice.Limit{
		sluice.PerSecond(2).WithBurst(1),
		sluice.PerSecond(2).WithBurst(20).WithAlgorithm(sluice.LeakyQueue),
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, limit)
			began := time.Now()
			type turn struct {
				caller int
				after  time.Duration
			}
			turns := make(chan turn)
			for i := range 6 {
				go func() {
					if err := l.Wait(background, "k"); err != nil {
						t.Error(err)
					}
					turns <- turn{i, time.Since(began)}
				}()
				synctest.Wait() // so that they arrive one after the other
			}
			var order []int
			var times []time.Duration
			for range 6 {
				next := <-turns
				order, times = append(order, next.caller), append(times, next.after)
			}
			if !slices.IsSorted(order) {
				t.Errorf("%v: served in the order %v", limit, order)
			}
			for i, at := range times {
				if want := time.Duration(i) * 500 * time.Millisecond; at != want {
					t.Errorf("%v: caller %d served at %v, want %v", limit, i, at, want)
				}
			}
		})
	}
}

// A caller whose place in the queue is after its deadline returns at once.
func TestWaitForAFarPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, sluice.PerSecond(1).WithBurst(20).WithAlgorithm(sluice.LeakyQueue))
		for range 10 {
			mustAllow(t, l, "k", 1)
		}
		ctx, cancel := context.WithTimeout(background, 6*time.Second)
		defer cancel()
		began := time.Now()
		if err := l.Wait(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 0 {
			t.Errorf("ten in the queue and six seconds to wait: %v after %v", err, time.Since(began))
		}
	})
}

func TestWaitForWindows(t *testing.T) {
	for _, a := range []sluice.Algorithm{sluice.FixedWindow, sluice.SlidingWindowLog, sluice.SlidingWindowCounter} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, sluice.PerMinute(2).WithAlgorithm(a))
			began := time.Now()
			for range 3 {
				if err := l.Wait(background, "k"); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began); took <= 0 || took > 2*time.Minute {
				t.Errorf("%v: the third was served after %v", a, took)
			}
		})
	}
}

func TestWaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, sluice.PerMinute(1))
		mustAllow(t, l, "k", 1)

		ctx, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		began := time.Now()
		if err := l.Wait(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait that is too long: %v", err)
		}
		if time.Since(began) != 0 {
			t.Error("it waited although it was bound to be too late")
		}

		// A caller that leaves refunds its place: the next caller waits as if it had not been there.
		ctx, cancel = context.WithCancel(background)
		go func() {
			<-time.After(10 * time.Second)
			cancel()
		}()
		if err := l.Wait(ctx, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled wait: %v", err)
		}
		if err := l.Wait(background, "k"); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the next was served after %v, want 1m", took)
		}
		if err := l.WaitN(background, "k", 2); !errors.Is(err, sluice.ErrExceedsLimit) {
			t.Errorf("a cost above the burst: %v", err)
		}
	})
}

// No caller would release a permit acquired by Wait.
func TestWaitRefusesSlots(t *testing.T) {
	l, err := sluice.New(memstore.New(), "in-flight", sluice.Concurrent(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Wait(t.Context(), "k"); !errors.Is(err, sluice.ErrInvalid) {
		t.Errorf("Wait for a permit: %v", err)
	}
	if d, err := l.Peek(t.Context(), "k"); err != nil || d.Remaining != 1 {
		t.Errorf("a permit was acquired: %+v, %v", d, err)
	}
}
