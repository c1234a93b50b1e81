package storetest

import (
	"fmt"
	"math"
	"time"

	"github.com/sluiceproject/sluice"
)

// meter is what one bucket has spent, by the definition of its algorithm. Times are microseconds since the epoch. What
// it says of a time is a function of that time alone, so that one may ask about the future.
type meter interface {
	// adopted is the meter, or a copy of it, as read under a limit whose numbers it was not written under.
	adopted(l *sluice.Limit, now int64) meter
	// fits tells whether cost could be spent at t if nobody else came before.
	fits(l *sluice.Limit, t, cost int64) bool
	// remaining is the largest cost that fits at t.
	remaining(l *sluice.Limit, t int64) int64
	// expiresAt is when the meter equals that of a key never seen, t at the earliest.
	expiresAt(l *sluice.Limit, t int64) int64
	// hasExpired is from when on nothing needs to be remembered.
	hasExpired() int64
	// spend books a cost that was allowed, from a moment on, and returns the moment that names it.
	spend(l *sluice.Limit, now, cost, at int64) int64
	// charge books a cost that was refused.
	charge(l *sluice.Limit, now, cost int64)
	// adjust settles the take that counts from at and was charged so much: delta more, which is charged now, or if negative
	// less, as far as it has not worn off.
	adjust(l *sluice.Limit, now, at, charged, delta int64) int64
	// leaves tells whether anything wears off at a time for which gone is true.
	leaves(gone func(at int64) bool) bool
}

// kindOf names limits that can read each other's counts.
func kindOf(l *sluice.Limit) string {
	switch l.Algorithm {
	case sluice.TokenBucket, sluice.LeakyBucket, sluice.LeakyQueue:
		if l.Refill == sluice.RefillInterval {
			return "interval"
		}
		if l.Initial != 0 {
			return "initial"
		}
		return "bucket"
	case sluice.SlidingWindowCounter:
		if l.SubWindows > 1 {
			return fmt.Sprintf("sub-windows %d", l.SubWindows)
		}
	}
	return l.Algorithm.String()
}

func newMeter(l *sluice.Limit) meter {
	switch l.Algorithm {
	case sluice.FixedWindow:
		return &windowMeter{}
	case sluice.SlidingWindowLog:
		return &logMeter{}
	case sluice.Concurrency:
		return &permitMeter{}
	case sluice.SlidingWindowCounter:
		if l.SubWindows > 1 {
			return &subWindowMeter{counts: map[int64]int64{}}
		}
		return &counterMeter{}
	}
	if l.Refill == sluice.RefillInterval {
		return &intervalMeter{}
	}
	return &bucketMeter{}
}

// maxOf is the largest cost that can ever fit, which callers are told as their limit.
func maxOf(l *sluice.Limit) int64 {
	switch l.Algorithm {
	case sluice.TokenBucket, sluice.LeakyBucket, sluice.LeakyQueue:
		return l.Burst
	}
	return l.Count + l.SoftExcess
}

// waits tells that a take may be given a place later than now.
func waits(l *sluice.Limit) bool {
	return l.Algorithm == sluice.TokenBucket || l.Algorithm == sluice.LeakyBucket
}

// tryCost answers a take of exactly this cost.
func tryCost(m meter, l *sluice.Limit, now, cost int64, maxDelay time.Duration) sluice.Decision {
	d := sluice.Decision{Remaining: m.remaining(l, now), ResetAfter: micros(m.expiresAt(l, now) - now), Receipt: now}
	if cost > maxOf(l) {
		d.ExceedsLimit = true
		return d
	}
	fit := firstFit(m, l, now, cost)
	if retry := retryFrom(m, l, now, fit, maxDelay); retry > 0 {
		d.RetryAfter = micros(retry)
		return d
	}
	d.Allowed, d.Granted = true, cost
	switch {
	case waits(l):
		d.Delay = micros(fit)
	case l.Algorithm == sluice.LeakyQueue: // behind everything that is in the queue
		d.Delay = micros(m.expiresAt(l, now) - now)
	}
	d.Receipt = now + d.Delay.Microseconds()
	return d
}

// retryAfter is how much later a take is allowed if nobody else comes: 0 if it is allowed now.
func retryAfter(m meter, l *sluice.Limit, now, cost int64, maxDelay time.Duration) int64 {
	return retryFrom(m, l, now, firstFit(m, l, now, cost), maxDelay)
}

// retryFrom is the same for a cost that fits so much later.
func retryFrom(m meter, l *sluice.Limit, now, fit int64, maxDelay time.Duration) int64 {
	switch {
	case waits(l): // from when the wait is short enough
		return max(0, fit-maxDelay.Microseconds())
	case l.Algorithm == sluice.LeakyQueue && maxDelay > 0:
		return max(fit, m.expiresAt(l, now)-now-maxDelay.Microseconds())
	}
	return fit
}

// firstFit is how much later than now cost fits. Where the definition does not give the moment it is searched for: room
// only ever grows while nobody comes.
func firstFit(m meter, l *sluice.Limit, now, cost int64) int64 {
	if m.fits(l, now, cost) {
		return 0
	}
	if b, ok := m.(*bucketMeter); ok {
		return b.reaches(l, now, cost) - now
	}
	low, high := int64(0), int64(1) // it does not fit at low
	for !m.fits(l, now+high, cost) {
		if high > math.MaxInt64/4-now {
			panic(fmt.Sprintf("storetest: a cost of %d never fits %v", cost, l))
		}
		low, high = high, high*2
	}
	for high-low > 1 {
		if mid := low + (high-low)/2; m.fits(l, now+mid, cost) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// floorDiv divides, rounding down for negative numbers too.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func ceilDiv(a, b int64) int64 { return -floorDiv(-a, b) }
