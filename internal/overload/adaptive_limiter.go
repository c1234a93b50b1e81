package overload

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Priority is who goes first. Lower priorities are turned away earlier.
type Priority uint8

const (
	Low Priority = iota
	Normal
	High
	Critical // only turned away at a gate's maximum
	priorities
)

var priorityNames = [...]string{"low", "normal", "high", "critical"}

// String returns the priority's name in rule files and metrics.
func (p Priority) String() string { return priorityNames[min(p, Critical)] }

// shares are how much of a gate's limit may be in flight for a request of each priority to enter. Over the last tenth of
// the limit before that, chance decides: so those of one priority who come often and those who come rarely lose alike.
var shares = [priorities]float64{Low: 0.5, Normal: 0.75, High: 1}

const edge = 0.1

// Config is how a gate is made. None enters while Max are in flight, and Min are never taken for too many.
type Config struct {
	Min, Max int
	Shadow   bool // nobody is turned away; who would have been is counted
}

// Gate bounds the requests in flight. It is safe for concurrent use.
type Gate struct {
	inFlight atomic.Int64
	bounds   atomic.Pointer[Config]
	limit    atomic.Uint64 // bits of a float64: the learner's
	shed     [priorities]atomic.Int64
	turned   atomic.Int64 // shed in the present window
	chance   func() float64

	mu      sync.Mutex // guards the fields below
	learner learner
	window  window
}

// NewGate returns a gate at its maximum: nobody is turned away before an overload is seen.
func NewGate(cfg Config) *Gate {
	g := &Gate{chance: rand.Float64, window: window{began: time.Now().Add(warmUp)}, learner: learner{pause: firstPause}}
	g.Configure(cfg)
	return g
}

// Configure changes the bounds and keeps what was learnt. A gate whose limit was at its maximum goes to the new one.
func (g *Gate) Configure(cfg Config) {
	cfg.Min = max(1, cfg.Min)
	cfg.Max = max(cfg.Min, cfg.Max)
	g.mu.Lock()
	defer g.mu.Unlock()
	l := &g.learner
	if l.limit == 0 || l.limit >= l.max {
		l.limit = float64(cfg.Max)
	}
	l.min, l.max = float64(cfg.Min), float64(cfg.Max)
	l.limit = min(max(l.limit, l.min), l.max)
	g.bounds.Store(&cfg)
	g.setLimit(l.limit)
}

func (g *Gate) setLimit(l float64) { g.limit.Store(math.Float64bits(l)) }

// Limit is how many may be in flight now.
func (g *Gate) Limit() int { return int(math.Float64frombits(g.limit.Load())) }

// InFlight is how many are.
func (g *Gate) InFlight() int { return int(g.inFlight.Load()) }

// Shed is how many of a priority were turned away, or in shadow would have been.
func (g *Gate) Shed(p Priority) int64 { return g.shed[min(p, Critical)].Load() }

// Enter asks whether a request may go on, and if so fills the ticket, with which it has to leave. The ticket must be new
// or have left.
func (g *Gate) Enter(p Priority, t *Ticket) bool {
	cfg := g.bounds.Load()
	counted := false
	for {
		n := g.inFlight.Load()
		if !counted && !g.admits(p, float64(n), cfg) {
			if g.refused(p); !cfg.Shadow {
				return false
			}
			counted = true // in shadow it is counted once and goes on
		}
		if g.inFlight.CompareAndSwap(n, n+1) {
			break
		}
	}
	t.gate.Store(g)
	t.entered = time.Now()
	t.began, t.took = t.entered, 0
	t.waits, t.waited, t.early = 0, 0, 0
	return true
}

func (g *Gate) admits(p Priority, n float64, cfg *Config) bool {
	if n >= float64(cfg.Max) {
		return false
	}
	if p >= Critical || n == 0 {
		return true
	}
	limit := math.Float64frombits(g.limit.Load())
	room := (shares[p]*limit - n) / (edge * limit)
	return room >= 1 || room > 0 && g.chance() < room
}

func (g *Gate) refused(p Priority) {
	g.shed[min(p, Critical)].Add(1)
	g.turned.Add(1)
	// When nobody has left for long, what was learnt is old, and nobody else would notice.
	if g.mu.TryLock() {
		if now := time.Now(); now.Sub(g.window.began) > stale {
			g.endWindow(now)
		}
		g.mu.Unlock()
	}
}

// Outcome is how a request ended, as far as it tells of overload.
type Outcome uint8

const (
	Answered Outcome = iota // by the upstream, whatever it said
	Failed                  // it did not, or said that it cannot: 502, 503, 504
	Left                    // the client did not wait
	Aside                   // it tells nothing: it did not get to the upstream
)

// Ticket is a request in flight. It is good for one: the zero Ticket is ready, and one that has left is so again.
type Ticket struct {
	gate    atomic.Pointer[Gate] // nil: none, or it has left
	entered time.Time
	began   time.Time // to wait for the upstream
	took    time.Duration

	mu     sync.Mutex    // guards the fields below
	waits  int           // calls of Wait without Resume
	since  time.Time     // the first of them
	waited time.Duration // in all
	early  time.Duration // of that, before Begin
}

// Begin has the time be measured from now on: what came before was not the upstream's.
func (t *Ticket) Begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began = time.Now()
	t.early = t.waitedUntil(t.began)
}

// FirstByte ends the measuring: what follows is as long as the answer is.
func (t *Ticket) FirstByte() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.measure(time.Now())
}

func (t *Ticket) measure(now time.Time) {
	if t.took == 0 {
		t.took = max(1, now.Sub(t.began)-(t.waitedUntil(now)-t.early))
	}
}

// waitedUntil returns for how long Wait was in effect.
func (t *Ticket) waitedUntil(now time.Time) time.Duration {
	if t.waits > 0 {
		return t.waited + now.Sub(t.since)
	}
	return t.waited
}

// Wait begins a time in which the request waits for its client and not for the upstream: it is not in flight, and the time
// is not measured. Each call is ended by one of Resume; calls may overlap, and come after Leave.
func (t *Ticket) Wait() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits++; t.waits > 1 {
		return
	}
	t.since = time.Now()
	if g := t.gate.Load(); g != nil {
		g.inFlight.Add(-1)
	}
}

// Resume ends a Wait. The request is in flight again, also if that makes more than the limit: the upstream has begun it.
func (t *Ticket) Resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits--; t.waits > 0 {
		return
	}
	t.waited += time.Since(t.since)
	if g := t.gate.Load(); g != nil {
		g.inFlight.Add(1)
	}
}

// Leave ends the request. A second call does nothing.
func (t *Ticket) Leave(o Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gate.Swap(nil)
	if g == nil {
		return
	}
	now := time.Now()
	t.measure(now)
	if t.waits == 0 {
		g.inFlight.Add(-1)
	}
	n := g.inFlight.Load() + 1
	g.mu.Lock()
	defer g.mu.Unlock()
	w := &g.window
	length := now.Sub(w.began)
	if length < 0 { // it belongs to another limit
		return
	}
	w.life += float64(now.Sub(t.entered) - t.waitedUntil(now))
	w.add(o, float64(t.took), float64(n), g.learner.base)
	if length > stale || length >= shortest && w.enough() {
		g.endWindow(now)
	}
}

// endWindow has the learner look at the window, and begins the next. The lock is held.
func (g *Gate) endWindow(now time.Time) {
	w, l := &g.window, &g.learner
	w.shed = g.turned.Swap(0)
	settle := time.Duration(0)
	if length := now.Sub(w.began); length <= stale && w.enough() {
		settle = l.learn(w, now, length)
	} else {
		l.quiet(length)
	}
	g.setLimit(l.limit)
	*w = window{began: now.Add(settle)}
}
