package overload

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Priority is the order in which requests are shed: lower priorities earlier.
type Priority uint8

const (
	Low Priority = iota
	Normal
	High
	Critical // shed only at the limiter's maximum
	priorities
)

var priorityNames = [...]string{"low", "normal", "high", "critical"}

// String returns the priority's name in rule files and metrics.
func (p Priority) String() string { return priorityNames[min(p, Critical)] }

// shares are the fractions of the limit below which requests of each priority are admitted. Within the last randomShare of the
// limit below that, requests are admitted at random, so that frequent and rare clients of a priority are shed alike.
var shares = [priorities]float64{Low: 0.5, Normal: 0.75, High: 1}

const randomShare = 0.1

// Config bounds the limit. No request is admitted while Max requests are in flight, and the limit never falls below Min.
type Config struct {
	Min, Max int
	Shadow   bool // count the requests to shed, but admit them
}

// AdaptiveLimiter bounds the requests in flight by a limit that adapts. It is safe for concurrent use.
type AdaptiveLimiter struct {
	inFlight     atomic.Int64
	bounds       atomic.Pointer[Config]
	limit        atomic.Uint64 // bits of a float64: copy of estimator.limit
	shed         [priorities]atomic.Int64
	shedInWindow atomic.Int64 // shed in the current window
	chance       func() float64

	mu        sync.Mutex // guards the fields below
	estimator estimator
	window    window
}

// NewAdaptiveLimiter returns a limiter at its maximum: no request is shed before an overload is measured.
func NewAdaptiveLimiter(cfg Config) *AdaptiveLimiter {
	l := &AdaptiveLimiter{chance: rand.Float64, window: window{start: time.Now().Add(warmUp)}, estimator: estimator{probePause: minProbePause}}
	l.Configure(cfg)
	return l
}

// Configure changes the bounds and keeps the estimates. A limit at its maximum moves to the new maximum.
func (l *AdaptiveLimiter) Configure(cfg Config) {
	cfg.Min = max(1, cfg.Min)
	cfg.Max = max(cfg.Min, cfg.Max)
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.estimator
	if e.limit == 0 || e.limit >= e.max {
		e.limit = float64(cfg.Max)
	}
	e.min, e.max = float64(cfg.Min), float64(cfg.Max)
	e.limit = min(max(e.limit, e.min), e.max)
	l.bounds.Store(&cfg)
	l.setLimit(e.limit)
}

func (l *AdaptiveLimiter) setLimit(limit float64) { l.limit.Store(math.Float64bits(limit)) }

// Limit returns the current limit on requests in flight.
func (l *AdaptiveLimiter) Limit() int { return int(math.Float64frombits(l.limit.Load())) }

// InFlight returns the number of requests in flight.
func (l *AdaptiveLimiter) InFlight() int { return int(l.inFlight.Load()) }

// Shed returns the number of requests of a priority that were shed, or would have been in shadow mode.
func (l *AdaptiveLimiter) Shed(p Priority) int64 { return l.shed[min(p, Critical)].Load() }

// Acquire reports whether a request is admitted. If so, it initializes the ticket, and the caller must call its Done. The
// ticket must be new or done.
func (l *AdaptiveLimiter) Acquire(p Priority, t *Ticket) bool {
	cfg := l.bounds.Load()
	counted := false
	for {
		n := l.inFlight.Load()
		if !counted && !l.admits(p, float64(n), cfg) {
			if l.recordShed(p); !cfg.Shadow {
				return false
			}
			counted = true // in shadow mode it is counted once and admitted
		}
		if l.inFlight.CompareAndSwap(n, n+1) {
			break
		}
	}
	t.limiter.Store(l)
	t.acquired = time.Now()
	t.started, t.took = t.acquired, 0
	t.waits, t.waited, t.waitedBefore = 0, 0, 0
	return true
}

func (l *AdaptiveLimiter) admits(p Priority, n float64, cfg *Config) bool {
	if n >= float64(cfg.Max) {
		return false
	}
	if p >= Critical || n == 0 {
		return true
	}
	limit := math.Float64frombits(l.limit.Load())
	room := (shares[p]*limit - n) / (randomShare * limit)
	return room >= 1 || room > 0 && l.chance() < room
}

func (l *AdaptiveLimiter) recordShed(p Priority) {
	l.shed[min(p, Critical)].Add(1)
	l.shedInWindow.Add(1)
	// If no request ends for long, the estimates become stale, and only this check ends the window.
	if l.mu.TryLock() {
		if now := time.Now(); now.Sub(l.window.start) > maxWindow {
			l.endWindow(now)
		}
		l.mu.Unlock()
	}
}

// Outcome is the outcome of a request with regard to overload.
type Outcome uint8

const (
	Responded    Outcome = iota // the upstream responded with a status other than those of Failed
	Failed                      // no response, or 502, 503 or 504
	ClientClosed                // the client disconnected before the response
	NotForwarded                // it did not reach the upstream, so it is no sample
)

// Ticket is a request in flight. The zero Ticket is ready for Acquire, and so is one after Done.
type Ticket struct {
	limiter  atomic.Pointer[AdaptiveLimiter] // nil: not acquired, or done
	acquired time.Time
	started  time.Time // start of the latency measurement
	took     time.Duration

	mu           sync.Mutex    // guards the fields below
	waits        int           // calls of Wait without Resume
	waitingSince time.Time     // time of the first of them
	waited       time.Duration // total waiting time
	waitedBefore time.Duration // part of it before StartTimer
}

// StartTimer restarts the latency measurement, because the time before was not spent in the upstream.
func (t *Ticket) StartTimer() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started = time.Now()
	t.waitedBefore = t.waitedUntil(t.started)
}

// ResponseStarted ends the latency measurement, because the remaining time depends on the size of the response.
func (t *Ticket) ResponseStarted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.measure(time.Now())
}

func (t *Ticket) measure(now time.Time) {
	if t.took == 0 {
		t.took = max(1, now.Sub(t.started)-(t.waitedUntil(now)-t.waitedBefore))
	}
}

// waitedUntil returns the total time between Wait and Resume.
func (t *Ticket) waitedUntil(now time.Time) time.Duration {
	if t.waits > 0 {
		return t.waited + now.Sub(t.waitingSince)
	}
	return t.waited
}

// Wait starts a time in which the request waits for its client and not for the upstream: it is not in flight, and the time
// is not measured. Each call needs a call of Resume. Calls may overlap and may come after Done.
func (t *Ticket) Wait() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits++; t.waits > 1 {
		return
	}
	t.waitingSince = time.Now()
	if l := t.limiter.Load(); l != nil {
		l.inFlight.Add(-1)
	}
}

// Resume ends a Wait. The request is in flight again even above the limit, because the upstream already processes it.
func (t *Ticket) Resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits--; t.waits > 0 {
		return
	}
	t.waited += time.Since(t.waitingSince)
	if l := t.limiter.Load(); l != nil {
		l.inFlight.Add(1)
	}
}

// Done ends the request. A second call does nothing.
func (t *Ticket) Done(o Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.limiter.Swap(nil)
	if l == nil {
		return
	}
	now := time.Now()
	t.measure(now)
	if t.waits == 0 {
		l.inFlight.Add(-1)
	}
	n := l.inFlight.Load() + 1
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &l.window
	length := now.Sub(w.start)
	if length < 0 { // it ended in the settling time after a change of the limit
		return
	}
	w.durationSum += float64(now.Sub(t.acquired) - t.waitedUntil(now))
	w.add(o, float64(t.took), float64(n), l.estimator.baseLatency)
	if length > maxWindow || length >= minWindow && w.hasEnough() {
		l.endWindow(now)
	}
}

// endWindow updates the estimator from the window and starts the next one. l.mu must be held.
func (l *AdaptiveLimiter) endWindow(now time.Time) {
	w, e := &l.window, &l.estimator
	w.shed = l.shedInWindow.Swap(0)
	settle := time.Duration(0)
	if length := now.Sub(w.start); length <= maxWindow && w.hasEnough() {
		settle = e.update(w, now, length)
	} else {
		e.idle(length)
	}
	l.setLimit(e.limit)
	*w = window{start: now.Add(settle)}
}
