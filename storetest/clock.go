package storetest

import (
	"sync/atomic"
	"time"
)

// ClockStart is where a [Clock] begins: a modern date at a whole hour, a Monday.
var ClockStart = time.Date(2026, time.March, 2, 1, 0, 0, 0, time.UTC)

// Clock is a clock that stands still until it is told otherwise. It may be set back. It is safe for concurrent use.
//
// A store under test takes its time from Now. A store whose server expires keys by a clock of its own must keep them
// longer while it is on a virtual one: that clock may stand still for as long as a test takes.
type Clock struct {
	micros atomic.Int64
}

// NewClock returns a clock that stands at [ClockStart].
func NewClock() *Clock {
	c := &Clock{}
	c.Set(ClockStart)
	return c
}

// Now is the clock's time, in whole microseconds.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.micros.Load()).UTC() }

// Set moves the clock to t, forwards or back.
func (c *Clock) Set(t time.Time) { c.micros.Store(t.UnixMicro()) }

// Advance moves the clock by d, which may be negative.
func (c *Clock) Advance(d time.Duration) { c.micros.Add(d.Microseconds()) }
