package storetest

import (
	"fmt"
	"math"
	"time"

	"github.com/sluiceproject/sluice"
)

// meter is the state of one bucket, by the definition of its algorithm. Times are microseconds since the epoch. Its
// results for a time depend on that time alone, so that future times can be queried.
type meter interface {
	// adopted returns the meter, or a copy of it, converted to another limit.
	adopted(l *sluice.Limit, now int64) meter
	// fits reports whether cost is allowed at t if no other take comes before.
	fits(l *sluice.Limit, t, cost int64) bool
	// remaining returns the largest cost that fits at t.
	remaining(l *sluice.Limit, t int64) int64
	// expiresAt returns when the meter is fully reset, at the earliest t.
	expiresAt(l *sluice.Limit, t int64) int64
	// hasExpired returns the time from which on no state is needed.
	hasExpired() int64
	// spend charges an allowed cost, from a time on, and returns the receipt.
	spend(l *sluice.Limit, now, cost, at int64) int64
	// charge charges a denied cost.
	charge(l *sluice.Limit, now, cost int64)
	// adjust settles the take with the receipt at that was charged this much. A positive delta is charged now, a
	// negative delta refunds the unexpired part.
	adjust(l *sluice.Limit, now, at, charged, delta int64) int64
	// leaves reports whether any usage expires at a time for which gone returns true.
	leaves(gone func(at int64) bool) bool
}

// kindOf names the kind of a limit. Limits of one kind can read each other's state.
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

// maxOf returns the largest cost that can ever fit, which is Decision.Limit.
func maxOf(l *sluice.Limit) int64 {
	switch l.Algorithm {
	case sluice.TokenBucket, sluice.LeakyBucket, sluice.LeakyQueue:
		return l.Burst
	}
	return l.Count + l.SoftExcess
}

// waits reports whether a take can be allowed with a delay.
func waits(l *sluice.Limit) bool {
	return l.Algorithm == sluice.TokenBucket || l.Algorithm == sluice.LeakyBucket
}

// tryCost decides a take of exactly this cost.
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
	case l.Algorithm == sluice.LeakyQueue: // behind all takes in the queue
		d.Delay = micros(m.expiresAt(l, now) - now)
	}
	d.Receipt = now + d.Delay.Microseconds()
	return d
}

// retryAfter returns how much later a take is allowed if no other take comes, or 0 if it is allowed now.
func retryAfter(m meter, l *sluice.Limit, now, cost int64, maxDelay time.Duration) int64 {
	return retryFrom(m, l, now, firstFit(m, l, now, cost), maxDelay)
}

// retryFrom is retryAfter for a cost that fits after fit.
func retryFrom(m meter, l *sluice.Limit, now, fit int64, maxDelay time.Duration) int64 {
	switch {
	case waits(l): // when the delay is short enough
		return max(0, fit-maxDelay.Microseconds())
	case l.Algorithm == sluice.LeakyQueue && maxDelay > 0:
		return max(fit, m.expiresAt(l, now)-now-maxDelay.Microseconds())
	}
	return fit
}

// firstFit returns how much later than now cost fits. Where the definition does not give the time, it is searched for:
// while no take comes, the available quota only grows.
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
