package storetest

import (
	"sync/atomic"
	"time"
)

// ClockStart is the initial time of a [Clock]: Monday, 2 March 2026, 01:00 UTC.
var ClockStart = time.Date(2026, time.March, 2, 1, 0, 0, 0, time.UTC)

// Clock is a virtual clock that moves only when a test moves it. It may be set back. It is safe for concurrent use.
//
// A store under test uses Now as its clock. If a server of the store expires keys by its own clock, the store must keep
// them longer on a virtual clock, which may stand still for the duration of a test.
type Clock struct {
	micros atomic.Int64
}

// NewClock returns a clock that is set to [ClockStart].
func NewClock() *Clock {
	c := &Clock{}
	c.Set(ClockStart)
	return c
}

// Now returns the time of the clock, in whole microseconds.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.micros.Load()).UTC() }

// Set sets the clock to t, which may be before Now.
func (c *Clock) Set(t time.Time) { c.micros.Store(t.UnixMicro()) }

// Advance moves the clock by d, which may be negative.
func (c *Clock) Advance(d time.Duration) { c.micros.Add(d.Microseconds()) }
