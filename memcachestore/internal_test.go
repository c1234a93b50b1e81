package memcachestore

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
)

// TestTTL: times to live at the bounds of what Memcached takes.
func TestTTL(t *testing.T) {
	const second, day = int64(1_000_000), int64(24 * 3600)
	wall := time.Date(2026, time.March, 2, 0, 0, 0, 0, time.UTC)
	late := time.Unix(math.MaxInt32-10, 0)
	for _, tt := range []struct {
		what string
		left int64 // in microseconds
		wall time.Time
		want int64
	}{
		{"nothing", 0, wall, 1 + ttlMargin},
		{"gone by", -5 * second, wall, 1 + ttlMargin},
		{"a microsecond", 1, wall, 1 + ttlMargin},
		{"a second", second, wall, 2 + ttlMargin},
		{"30 days with the margin", (month - 1 - ttlMargin) * second, wall, month},
		{"a second more", (month - ttlMargin) * second, wall, wall.Unix() + month + 1 + longMargin},
		{"a year", 365 * day * second, wall, wall.Unix() + 365*day + 1 + ttlMargin + longMargin},
		{"a hundred years", 36500 * day * second, wall, math.MaxInt32},
		{"a year, at the end of dates", 365 * day * second, late, month},
		{"an hour, at the end of dates", 3600 * second, late, 3601 + ttlMargin},
	} {
		if got := new(Store).ttl(someTime, someTime+tt.left, tt.wall); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.what, got, tt.want)
		}
	}
}

// TestClock: the clock follows the wall clock, never goes back, and is caught up with when that was set back.
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
			t.Error("the clock went back")
		}
	}
	if c.now != wall {
		t.Errorf("the clock is %d µs from the wall clock for good", c.now-wall)
	}
	if c.micros() <= 0 {
		t.Error("there is no time")
	}
}

// TestPick: each server has its share of the keys, and one that is added takes only its own.
func TestPick(t *testing.T) {
	s := &Store{}
	for i := range 5 {
		s.servers = append(s.servers, &server{addr: fmt.Sprint(i), seed: seedOf(fmt.Sprint(i))})
	}
	fewer := &Store{servers: s.servers[:4]}
	share := map[*server]int{}
	const keys = 10_000
	for i := range keys {
		d := itemDigest(group.RuleID{}, fmt.Sprint(i))
		v := s.pick(d)
		share[v]++
		if old := fewer.pick(d); v != old && v != s.servers[4] {
			t.Fatalf("key %d moved from %s to %s when server 4 was added", i, old.addr, v.addr)
		}
	}
	for v, n := range share {
		if n < keys/5*9/10 || n > keys/5*11/10 {
			t.Errorf("server %s has %d of %d keys", v.addr, n, keys)
		}
	}
}

// TestQueue: callers of a key go one after the other in the order they came, those of other keys do not wait, and who
// gives up leaves.
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
			t.Error("two have their turn")
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
			if n := len(q.parts[i].lines); n != 0 {
				t.Errorf("%d lines are left", n)
			}
		}
	})
}

// TestBackOff: waits grow, up to a bound.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for attempt := range 100 {
			start := time.Now()
			if err := new(Store).backOff(t.Context(), attempt); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d > min(minBackoff<<min(attempt, 20), maxBackoff) || attempt == 0 && d != 0 {
				t.Errorf("before attempt %d: waited %v", attempt, d)
			}
		}
	})
}
