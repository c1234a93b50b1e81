package memcachestore

import (
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

// clock is the wall clock, but never goes back. While the wall clock is behind an earlier reading, this one runs at half
// its speed until they meet. Other processes follow the wall clock: a process that stayed ahead of them would deny their
// requests for as long.
type clock struct {
	mu   sync.Mutex // guards the fields below
	read time.Time
	now  int64
}

func (c *clock) micros() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := time.Now()
	passed := t.Sub(c.read) // by the monotonic clock
	c.read = t
	return c.moveLocked(t.UnixMicro(), passed)
}

// moveLocked moves the clock to a reading of the wall clock, which the monotonic clock says is passed after the last.
func (c *clock) moveLocked(wall int64, passed time.Duration) int64 {
	slow := c.now
	if c.now > 0 {
		slow += max(0, passed.Microseconds()) / 2
	}
	c.now = max(wall, slow)
	return c.now
}

// micros returns the time by which the kit decides. It is bounded, so that a clock that is far out does not break the
// arithmetic.
func (s *kit) micros() int64 {
	now := int64(0)
	if s.now != nil {
		now = s.now().UnixMicro()
	} else {
		now = s.clock.micros()
	}
	return min(max(now, 1), step.MaxTime-3*step.Horizon/2)
}

const (
	// ttlMargin is how much longer than needed an item is stored: callers whose clocks are behind need it for longer.
	ttlMargin = 5 * time.Second
	// testMargin is added when the store has another clock, because the backend's runs on while a test's stands still.
	testMargin = time.Hour
)

// ttl returns for how long to store a value that expires at a time.
func (s *kit) ttl(now, expires int64) time.Duration {
	left := min(max(0, expires-now), step.MaxTime) // or a Duration could not hold it
	ttl := time.Duration(left)*time.Microsecond + ttlMargin
	if s.now != nil {
		ttl += testMargin
	}
	return ttl
}
