package memcachestore

import (
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

// clock is a wall clock that never runs backwards. While the wall clock is behind an earlier reading, this clock runs
// at half speed until both meet. Other processes follow the wall clock: a process that stayed ahead of them would cause
// denials for their requests during that time.
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

// moveLocked moves the clock to a reading of the wall clock. passed is the time since the last reading by the monotonic
// clock.
func (c *clock) moveLocked(wall int64, passed time.Duration) int64 {
	slow := c.now
	if c.now > 0 {
		slow += max(0, passed.Microseconds()) / 2
	}
	c.now = max(wall, slow)
	return c.now
}

// micros returns the time of decisions, in microseconds. It is bounded, so that a wrong clock does not cause overflows.
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
	// ttlMargin is added to the TTL of an item, because callers whose clocks are behind need it for longer.
	ttlMargin = 5 * time.Second
	// testMargin is added if Config.Now is set, because the backend's clock continues while a test's clock stands
	// still.
	testMargin = time.Hour
)

// ttl returns the TTL of a value that expires at a time.
func (s *kit) ttl(now, expires int64) time.Duration {
	left := min(max(0, expires-now), step.MaxTime) // otherwise a Duration could overflow
	ttl := time.Duration(left)*time.Microsecond + ttlMargin
	if s.now != nil {
		ttl += testMargin
	}
	return ttl
}
