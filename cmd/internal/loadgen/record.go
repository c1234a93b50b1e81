package loadgen

import (
	"runtime"
	"sync"
	"time"
)

// A Point is what happened in a part of a run.
type Point struct {
	At                      time.Duration // its end, from the run's begin
	For                     time.Duration // how long it was
	Allowed, Denied, Failed int64
	Latency                 Histogram
}

func (p *Point) add(o *Point) {
	p.Allowed += o.Allowed
	p.Denied += o.Denied
	p.Failed += o.Failed
	p.Latency.Add(&o.Latency)
}

func (p *Point) reset() {
	p.Latency.reset()
	*p = Point{Latency: p.Latency}
}

const (
	pointInterval = 100 * time.Millisecond // at first
	maxPoints     = 200                    // beyond these, each is joined with the next
	maxTexts      = 20                     // codes, and reasons of failure, that are told apart
	otherTexts    = "others"
)

// A recorder collects what callers see. Callers share a few parts of it, and take turns on each.
type recorder struct {
	begun time.Time
	parts []recorderPart

	mu     sync.Mutex // guards the following
	points []Point
	every  time.Duration
	sum    Point
}

type recorderPart struct {
	mu      sync.Mutex // guards the following
	point   Point
	codes   map[string]int64
	reasons map[string]int64
	missed  int64
	cut     int64
	late    int64
	maxLate time.Duration
	last    time.Time // when the last answer came
	_       [64]byte  // apart from the next one's lock
}

func newRecorder(begun time.Time) *recorder {
	r := &recorder{begun: begun, every: pointInterval, parts: make([]recorderPart, 4*runtime.GOMAXPROCS(0))}
	for i := range r.parts {
		r.parts[i].codes, r.parts[i].reasons = map[string]int64{}, map[string]int64{}
	}
	return r
}

func (r *recorder) of(caller int) *recorderPart { return &r.parts[caller%len(r.parts)] }

// answered records an answer to a request that counts from a time.
func (p *recorderPart) answered(a Answer, from, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch a.Kind {
	case Allowed:
		p.point.Allowed++
	case Denied:
		p.point.Denied++
	default:
		p.point.Failed++
	}
	count(p.codes, a.Code)
	p.point.Latency.Record(now.Sub(from))
	p.last = now
}

// failed records a request without an answer. How long it took is part of the latencies only if time ran out: that long a
// caller waited. A connection that is refused takes no time, and would make a dead server look fast.
func (p *recorderPart) failed(err error, from, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.point.Failed++
	if timedOut(err) {
		p.point.Latency.Record(now.Sub(from))
	}
	count(p.reasons, reason(err))
	p.last = now
}

// count counts a text, and not too many different ones: a server may put anything there.
func count(m map[string]int64, text string) {
	if _, known := m[text]; !known && len(m) >= maxTexts {
		text = otherTexts
	}
	m[text]++
}

// miss records a request that was due and never sent. Who waits for it has waited this long at least.
func (p *recorderPart) miss(from, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missed++
	p.point.Failed++
	p.point.Latency.Record(now.Sub(from))
	count(p.reasons, "never sent: no caller was free")
}

// wasLate records that requests went out later than they should have.
func (p *recorderPart) wasLate(n int64, by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late += n
	p.maxLate = max(p.maxLate, by)
}

// cutOff records requests whose answers nobody waited for, because the run was interrupted.
func (p *recorderPart) cutOff(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut += n
}

// collect makes a point of what was seen since the last one.
func (r *recorder) collect(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := now.Sub(r.begun)
	p := Point{At: at, For: at}
	if n := len(r.points); n > 0 {
		p.For -= r.points[n-1].At
	}
	if n := len(r.points); n > 0 && p.For < r.every/2 { // too short to say how much that is in a second
		p.For += r.points[n-1].For
		p.add(&r.points[n-1])
		r.points = r.points[:n-1]
	}
	for i := range r.parts {
		part := &r.parts[i]
		part.mu.Lock()
		p.add(&part.point)
		r.sum.add(&part.point)
		part.point.reset()
		part.mu.Unlock()
	}
	r.points = append(r.points, p)
	if len(r.points) > maxPoints {
		r.thin()
	}
}

// thin joins neighbours.
func (r *recorder) thin() {
	r.every *= 2
	half := r.points[:0]
	for i := 0; i+1 < len(r.points); i += 2 {
		p, next := r.points[i], &r.points[i+1]
		p.add(next)
		p.At, p.For = next.At, p.For+next.For
		half = append(half, p)
	}
	if len(r.points)%2 == 1 {
		half = append(half, r.points[len(r.points)-1])
	}
	clear(r.points[len(half):])
	r.points = half
}

func (r *recorder) step() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.every
}

// result is all that was seen. No caller records any more.
func (r *recorder) result(now time.Time) *Result {
	r.collect(now)
	out := &Result{Begun: r.begun, Codes: map[string]int64{}, Reasons: map[string]int64{}, Points: r.points, Sum: r.sum}
	last := r.begun
	for i := range r.parts {
		p := &r.parts[i]
		out.Missed += p.missed
		out.Cut += p.cut
		out.Late += p.late
		out.MaxLate = max(out.MaxLate, p.maxLate)
		for code, n := range p.codes {
			out.Codes[code] += n
		}
		for text, n := range p.reasons {
			out.Reasons[text] += n
		}
		if p.last.After(last) {
			last = p.last
		}
	}
	out.Elapsed = last.Sub(r.begun)
	return out
}
