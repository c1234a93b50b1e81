package resp

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/private"
)

// numbers are the arguments of CL.THROTTLE that define a limit.
type numbers struct{ burst, count, period int64 }

// limit is a built limit.
type limit struct {
	numbers
	built *sluice.Limit
	unit  time.Duration // period/count, rounded up to a microsecond
}

// maxLimits is the maximum number of cached limits.
const maxLimits = 4096

// limits caches built limits, so that equal numbers use the same limit and are not built again.
type limits struct {
	mu sync.RWMutex // guards of
	of map[numbers]*limit
}

func (l *limits) get(n numbers) (*limit, error) {
	l.mu.RLock()
	known := l.of[n]
	l.mu.RUnlock()
	if known != nil {
		return known, nil
	}
	fresh, err := build(n)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.of[n]; known != nil {
		return known, nil
	}
	if len(l.of) >= maxLimits {
		bounds.RESPLimits.Reached()
		for any := range l.of { // in random order, so that clients cannot choose which one is evicted
			delete(l.of, any)
			break
		}
	}
	l.of[n] = fresh
	return fresh, nil
}

const (
	maxBurst  = 1 << 50
	maxPeriod = 366 * 24 * 3600
)

// anyLimit is the limit of which all limits are parts, so that a key has one state for all numbers: as in redis-cell, the
// time at which its bucket will be full.
var anyLimit = sluice.Must(sluice.PerSecond(1).Build())

// build returns the limit for n, or an error that names the invalid number.
func build(n numbers) (*limit, error) {
	switch {
	case n.burst < 0 || n.burst >= maxBurst:
		return nil, fmt.Errorf("max_burst %d is not between 0 and %d", n.burst, int64(maxBurst-1))
	case n.count < 1:
		return nil, fmt.Errorf("count %d is less than 1", n.count)
	case n.period < 1 || n.period > maxPeriod:
		return nil, fmt.Errorf("period %d is not between 1 and %d seconds", n.period, maxPeriod)
	}
	window := time.Duration(n.period) * time.Second
	requested := sluice.Per(n.count, window).WithBurst(n.burst + 1)
	private.MakePart(&requested, anyLimit)
	built, err := requested.Build()
	if err != nil {
		if fault, ok := errors.AsType[*sluice.LimitError](err); ok {
			err = errors.New(fault.Msg)
		}
		return nil, err
	}
	micros := (window.Microseconds() + n.count - 1) / n.count
	return &limit{n, built, time.Duration(micros) * time.Microsecond}, nil
}

// recent caches limits that a connection has used. It avoids the lock that connections share.
type recent [8]*limit

func (r *recent) get(all *limits, n numbers) (*limit, error) {
	at := &r[uint64(n.burst^n.count<<1^n.period<<2)%uint64(len(r))]
	if known := *at; known != nil && known.numbers == n {
		return known, nil
	}
	found, err := all.get(n)
	if err == nil {
		*at = found
	}
	return found, err
}
