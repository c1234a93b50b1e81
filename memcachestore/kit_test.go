package memcachestore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestClock checks that the clock follows the wall clock, never runs backwards, and meets the wall clock again after
// that was set back.
func TestClock(t *testing.T) {
	var c clock
	wall := int64(someTime)
	move := func(what string, step, passed time.Duration, want time.Duration) {
		t.Helper()
		before := c.now
		wall += step.Microseconds()
		if got := time.Duration(c.moveLocked(wall, passed)-before) * time.Microsecond; before != 0 && got != want {
			t.Errorf("%s: the clock moved by %v, want %v", what, got, want)
		}
	}
	move("start", 0, 0, 0)
	move("a second", time.Second, time.Second, time.Second)
	move("set forward", time.Hour, time.Second, time.Hour)
	move("set back", -10*time.Second, time.Second, 500*time.Millisecond)
	move("behind", 10*time.Second, 10*time.Second, 5*time.Second)
	move("caught up", 10*time.Second, 10*time.Second, 5*time.Second)
	move("and on", time.Second, time.Second, 500*time.Millisecond)
	for range 20 {
		last := c.now
		wall += 1_000_000
		if c.moveLocked(wall, time.Second) < last {
			t.Error("the clock ran backwards")
		}
	}
	if c.now != wall {
		t.Errorf("the clock stays %d µs away from the wall clock", c.now-wall)
	}
	if c.micros() <= 0 {
		t.Error("micros returned 0")
	}
}

// TestQueue checks that callers of a key are served in order of arrival, that those of other keys do not wait, and that
// a cancelled caller stops waiting.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q keyLocks
		ctx := context.Background()
		a, b := digest{1}, digest{2}
		if err := q.wait(ctx, []digest{a}); err != nil {
			t.Fatal(err)
		}
		var order []int
		for i := range 5 {
			go func() {
				_ = q.wait(ctx, []digest{b, a})
				order = append(order, i)
				q.leave([]digest{a, b})
			}()
			synctest.Wait()
		}
		brief, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := q.wait(brief, []digest{a}); err == nil {
			t.Error("two callers hold the lock")
		}
		if err := q.wait(ctx, []digest{{3}}); err != nil {
			t.Error(err)
		}
		q.leave([]digest{{3}})
		q.leave([]digest{a})
		synctest.Wait()
		if fmt.Sprint(order) != "[0 1 2 3 4]" {
			t.Errorf("served in order %v", order)
		}
		for i := range q.parts {
			if n := len(q.parts[i].locks); n != 0 {
				t.Errorf("%d locks are left", n)
			}
		}
	})
}

// TestBackOff checks that waits grow, up to a bound.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for attempt := range 100 {
			start := time.Now()
			if err := new(kit).backOff(t.Context(), attempt); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d > min(minBackoff<<min(attempt, 20), maxBackoff) || attempt == 0 && d != 0 {
				t.Errorf("before attempt %d: waited %v", attempt, d)
			}
		}
	})
}
