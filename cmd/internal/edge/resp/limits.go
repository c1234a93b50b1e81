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

// numbers are a limit as CL.THROTTLE has it.
type numbers struct{ burst, count, period int64 }

// limit is one that was built.
type limit struct {
	numbers
	built *sluice.Limit
	unit  time.Duration // in which one is won back, rounded up to the microsecond
}

// maxLimits bounds the limits that are kept ready.
const maxLimits = 4096

// limits keeps limits that calls have brought, so that the same numbers are the same limit and cost nothing to build.
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
		for any := range l.of { // whichever comes first, so that nobody can choose
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

// anyLimit is what all limits are parts of: under whichever numbers a key is asked for, as with redis-cell it keeps the
// moment at which it will be full.
var anyLimit = sluice.Must(sluice.PerSecond(1).Build())

// build makes a limit, or says which of the numbers makes no sense.
func build(n numbers) (*limit, error) {
	switch {
	case n.burst < 0 || n.burst >= maxBurst:
		return nil, fmt.Errorf("max_burst %d is not between 0 and %d", n.burst, int64(maxBurst-1))
	case n.count < 1:
		return nil, fmt.Errorf("count %d is not at least 1", n.count)
	case n.period < 1 || n.period > maxPeriod:
		return nil, fmt.Errorf("period %d is not between 1 and %d seconds", n.period, maxPeriod)
	}
	window := time.Duration(n.period) * time.Second
	asked := sluice.Per(n.count, window).WithBurst(n.burst + 1)
	private.MakePart(&asked, anyLimit)
	built, err := asked.Build()
	if err != nil {
		if fault, ok := errors.AsType[*sluice.LimitError](err); ok {
			err = errors.New(fault.Msg)
		}
		return nil, err
	}
	micros := (window.Microseconds() + n.count - 1) / n.count
	return &limit{n, built, time.Duration(micros) * time.Microsecond}, nil
}

// recent are limits that a connection has used. It saves a lock that connections share.
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
