package remote

import (
	"math/rand/v2"
	"sync"
	"time"
)

// A breaker stops asking a server that does not answer. It opens when in the last ten seconds, among at least twenty
// calls, half failed or four of five were slower than the timeout; and when for a quarter of a second none of at least
// twenty succeeded. Without the latter a busy process would go on for seconds: the more calls went well before, and the
// longer each takes now, the later half of them have failed. A server that stumbles for less is forgiven.
//
//	closed ──too many failures──▶ open ──after a while──▶ one probe ──answered──▶ ramping ──2 s──▶ closed
//	                               ▲                          │                      │
//	                               └────────failed, waits ────┴──────failures────────┘
//	                                        twice as long
//
// While it is open, or ramping up to full load, the rules' fail modes answer. The probe runs beside the callers: none of
// them waits for a server that is probably still away.
type breaker struct {
	mu                  sync.Mutex // guards the fields below
	state               breakerState
	seconds             [breakerWindow]breakerSecond
	probeAt             time.Time     // open: when to probe
	openFor             time.Duration // how long it was open last
	since               time.Time     // ramping: since when
	rampCalls           int           // ramping: counts calls
	consecutiveFailures int           // calls that failed one after the other
	failingSince        time.Time     // when the first of them did
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
	at                  int64 // which second; others are stale
	calls, failed, slow int
}

const (
	breakerWindow = 10 // seconds
	breakerCalls  = 20 // fewer say nothing
	// breakerRampCalls are enough of a server that has just been away. One is not: a busy process makes thousands of
	// calls while the load ramps up, of which one may fail on any day.
	breakerRampCalls = 5
	breakerStreak    = 250 * time.Millisecond
	breakerMinOpen   = 250 * time.Millisecond
	// breakerMaxOpen, with half as much again of jitter, has a server that is back asked within two seconds. A probe a
	// second from each process is nothing to a server that is in trouble.
	breakerMaxOpen = time.Second
	breakerRamp    = 2 * time.Second
)

// allow reports whether a call may be made, and whether the caller is to start a probe.
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

// ramping tells that the server has just come back.
func (b *breaker) ramping() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == breakerHalfOpen
}

// rampPercent is how many of a hundred calls are let through so long after a probe was answered: a server that has just
// come back is not asked everything at once.
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

// record notes how a call went, and reports whether the breaker has opened.
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

// open begins a pause, each twice as long as the one before, with jitter so that many processes do not probe in step.
func (b *breaker) open(now time.Time) {
	b.openFor = min(max(breakerMinOpen, 2*b.openFor), breakerMaxOpen)
	b.state, b.seconds, b.consecutiveFailures = breakerOpen, [breakerWindow]breakerSecond{}, 0
	b.probeAt = now.Add(time.Duration(float64(b.openFor) * (0.5 + rand.Float64())))
}

// recordProbe notes how a probe went, and reports whether the breaker lets calls through again.
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
