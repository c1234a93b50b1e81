package remote

import (
	"math/rand/v2"
	"sync"
	"time"
)

// breaker is a circuit breaker for one shard. It opens when, over the last 10 s and at least 20 calls, ≥ 50 % failed or
// ≥ 80 % exceeded the timeout, or when 20 consecutive calls failed over ≥ 250 ms. Without the second condition it would
// stay closed for seconds in a busy process: the more calls succeeded before, and the longer each takes now, the later
// 50 % of them have failed. Shorter disruptions do not open it. After a successful probe it is half-open for 2 s and
// passes 10 %, 25 %, 50 % of the calls.
//
//	closed ──too many failures──▶ open ──after openFor──▶ one probe ──success──▶ half-open ──2 s──▶ closed
//	                               ▲                          │                      │
//	                               └──failure: openFor × 2────┴───────failures───────┘
//
// While it is open, and for calls that a half-open breaker does not pass, the rules' fail modes decide. The probe runs
// in the background, so that no caller waits for a server that is probably still unavailable.
type breaker struct {
	mu                  sync.Mutex // guards the fields below
	state               breakerState
	seconds             [breakerWindow]breakerSecond
	probeAt             time.Time     // open: time of the next probe
	openFor             time.Duration // last duration of the open state
	since               time.Time     // half-open: start time
	rampCalls           int           // half-open: number of calls
	consecutiveFailures int           // number of consecutive failed calls
	failingSince        time.Time     // time of the first of them
	probing             bool
}

type breakerState uint8

const (
	breakerClosed breakerState = iota
	breakerOpen
	breakerHalfOpen
)

// breakerSecond counts the calls of one second.
type breakerSecond struct {
	at                  int64 // the second; other values are stale
	calls, failed, slow int
}

const (
	breakerWindow = 10 // in seconds
	breakerCalls  = 20 // minimum number of calls for a percentage
	// breakerRampCalls is the minimum number of calls in the half-open state. It is more than 1, because a busy process
	// makes thousands of calls in that state, of which one may fail at any time.
	breakerRampCalls = 5
	breakerStreak    = 250 * time.Millisecond
	breakerMinOpen   = 250 * time.Millisecond
	// breakerMaxOpen, with jitter of 50 %, means that a recovered server is called within 2 s. One probe per second and
	// instance is no load for a server in trouble.
	breakerMaxOpen = time.Second
	breakerRamp    = 2 * time.Second
)

// allow reports whether a call may be made, and whether the caller must start a probe.
func (b *breaker) allow(now time.Time) (ok, probe bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state {
	case breakerOpen:
		if b.probing || now.Before(b.probeAt) {
			return false, false
		}
		b.probing = true
		return false, true
	case breakerHalfOpen:
		part := rampPercent(now.Sub(b.since))
		if part == 100 {
			b.state = breakerClosed
			return true, false
		}
		b.rampCalls++
		return b.rampCalls%100 < part, false
	}
	return true, false
}

// ramping reports whether the breaker is half-open.
func (b *breaker) ramping() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == breakerHalfOpen
}

// rampPercent returns the percentage of calls that pass at a time after a successful probe, so that a recovered server
// does not get the full load at once.
func rampPercent(elapsed time.Duration) int {
	switch {
	case elapsed < breakerRamp/4:
		return 10
	case elapsed < breakerRamp/2:
		return 25
	case elapsed < breakerRamp:
		return 50
	}
	return 100
}

// record records the result of a call and reports whether the breaker opened.
func (b *breaker) record(now time.Time, failed, slow bool) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	second := now.Unix()
	s := &b.seconds[second%breakerWindow]
	if s.at != second {
		*s = breakerSecond{at: second}
	}
	s.calls++
	if failed {
		s.failed++
		if b.consecutiveFailures++; b.consecutiveFailures == 1 {
			b.failingSince = now
		}
	} else {
		b.consecutiveFailures = 0
	}
	if slow {
		s.slow++
	}
	switch {
	case b.state == breakerOpen, !failed && !slow:
		return false
	}
	least := breakerCalls
	if b.state == breakerHalfOpen {
		least = breakerRampCalls
	}
	hopeless := b.consecutiveFailures >= breakerCalls && now.Sub(b.failingSince) >= breakerStreak
	calls, failures, slows := 0, 0, 0
	for i := range b.seconds {
		if s := &b.seconds[i]; second-s.at < breakerWindow {
			calls, failures, slows = calls+s.calls, failures+s.failed, slows+s.slow
		}
	}
	if !hopeless && (calls < least || 2*failures < calls && 5*slows < 4*calls) {
		return false
	}
	b.open(now)
	return true
}

// open opens the breaker, each time for twice as long. Jitter prevents instances from probing at the same time.
func (b *breaker) open(now time.Time) {
	b.openFor = min(max(breakerMinOpen, 2*b.openFor), breakerMaxOpen)
	b.state, b.seconds, b.consecutiveFailures = breakerOpen, [breakerWindow]breakerSecond{}, 0
	b.probeAt = now.Add(time.Duration(float64(b.openFor) * (0.5 + rand.Float64())))
}

// recordProbe records the result of a probe and reports whether the breaker is half-open now.
func (b *breaker) recordProbe(now time.Time, answered bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
	if !answered {
		b.open(now)
		return false
	}
	b.state, b.since, b.rampCalls, b.openFor = breakerHalfOpen, now, 0, 0
	return true
}
