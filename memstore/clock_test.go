package memstore

import (
	"testing"
	"testing/synctest"
	"time"
)

// The clock follows the wall clock forward within a second and never goes back, however the wall clock is set.
func TestClockNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.start()
		last := c.micros()
		step := func(since time.Duration, wall time.Time) int64 {
			c.anchor(since.Microseconds(), wall)
			now := c.offset.Load() + since.Microseconds()
			if now < last {
				t.Errorf("after %v: went back by %d µs", since, last-now)
			}
			moved := now - last
			last = now
			return moved
		}
		if moved := step(2*time.Second, c.base.Add(2*time.Second)); moved != 2_000_000 {
			t.Errorf("in 2 s the clock moved by %d µs", moved)
		}
		if moved := step(4*time.Second, c.base.Add(time.Hour)); moved < int64(time.Hour/time.Microsecond)-4_000_000 {
			t.Errorf("the wall clock went an hour forward, the clock %d µs", moved)
		}
		// Set back by two hours: the clock continues, so that no key is locked out.
		if moved := step(6*time.Second, c.base.Add(-time.Hour)); moved != 2_000_000 {
			t.Errorf("the wall clock went back, the clock moved by %d µs in 2 s", moved)
		}
		if moved := step(6500*time.Millisecond, c.base.Add(24*time.Hour)); moved != 500_000 {
			t.Errorf("the wall clock was looked at again after half a second: moved by %d µs", moved)
		}
	})
}

func TestClockIsTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.start()
		for range 5 {
			<-time.After(700 * time.Millisecond)
			if got, want := c.micros(), time.Now().UnixMicro(); got != want {
				t.Errorf("the clock says %d, the wall %d", got, want)
			}
		}
	})
}
