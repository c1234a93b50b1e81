package memcachestore

import (
	"math"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

// clock is the wall clock, but never goes back. While the wall clock is behind what was told before, this one runs at
// half its speed until they meet: other processes have followed the wall clock, and who stays ahead of them for good
// would keep them out for as long.
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

// moveLocked moves the clock to a reading of the wall clock, so much later than the one before.
func (c *clock) moveLocked(wall int64, passed time.Duration) int64 {
	slow := c.now
	if c.now > 0 {
		slow += max(0, passed.Microseconds()) / 2
	}
	c.now = max(wall, slow)
	return c.now
}

// micros is the time by which the store decides. A clock that is far out must not break the arithmetic.
func (s *Store) micros() int64 {
	now := int64(0)
	if s.now != nil {
		now = s.now().UnixMicro()
	} else {
		now = s.clock.micros()
	}
	return min(max(now, 1), step.MaxTime-3*step.Horizon/2)
}

const (
	// ttlMargin is how much longer than needed a server keeps an item, in seconds. Its clock has whole seconds only, and
	// callers whose clocks are behind need an item for longer.
	ttlMargin = 5
	// longMargin is added where the time must be told as a date, so that a server whose clock is ahead of the caller's
	// does not forget early.
	longMargin = 24 * 3600
	// testMargin is added when the store is not on the time of day: the server's clock goes on while a test's stands.
	testMargin = 3600
	// month is where Memcached begins to read a time to live as a date, in seconds.
	month = 30 * 24 * 3600
)

// ttl says for how long to keep what has worn off at fresh, as Memcached takes it: up to 30 days as seconds, beyond
// that as a Unix time. Its dates end in January 2038; it takes a later one for a time long past and drops the item at
// once.
func (s *Store) ttl(now, fresh int64, wall time.Time) int64 {
	left := max(0, fresh-now)
	seconds := left/1_000_000 + 1 + ttlMargin
	if s.now != nil {
		seconds += testMargin
	}
	if seconds <= month {
		return seconds
	}
	date := min(wall.Unix()+seconds+longMargin, math.MaxInt32)
	if date-wall.Unix() <= month {
		return month
	}
	return date
}
