package loadgen

import (
	"runtime"
	"sync"
	"time"
)

// A Point is the results of one interval of a run.
type Point struct {
	At                      time.Duration // end of the interval, from the start of the run
	For                     time.Duration // length of the interval
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
	pointInterval = 100 * time.Millisecond // initial interval
	maxPoints     = 200                    // when exceeded, neighbouring points are joined
	maxTexts      = 20                     // maximum number of different codes and of different errors
	otherTexts    = "others"
)

// A recorder collects the results of callers. It has several parts, each shared by some callers, to reduce lock contention.
type recorder struct {
	begun time.Time
	parts []recorderPart

	mu     sync.Mutex // guards the fields below
	points []Point
	every  time.Duration
	sum    Point
}

type recorderPart struct {
	mu      sync.Mutex // guards the fields below
	point   Point
	codes   map[string]int64
	reasons map[string]int64
	missed  int64
	cut     int64
	late    int64
	maxLate time.Duration
	last    time.Time // time of the last response
	_       [64]byte  // padding against false sharing with the next part
}

func newRecorder(begun time.Time) *recorder {
	r := &recorder{begun: begun, every: pointInterval, parts: make([]recorderPart, 4*runtime.GOMAXPROCS(0))}
	for i := range r.parts {
		r.parts[i].codes, r.parts[i].reasons = map[string]int64{}, map[string]int64{}
	}
	return r
}

func (r *recorder) of(caller int) *recorderPart { return &r.parts[caller%len(r.parts)] }

// answered records a response. The latency is measured from the time from.
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

// failed records a request without a response. Its latency counts only after a timeout, because the caller waited that long.
// A refused connection fails at once and would make an unavailable server look fast.
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

// count counts a text. The number of different texts is bounded, because a server can send anything.
func count(m map[string]int64, text string) {
	if _, known := m[text]; !known && len(m) >= maxTexts {
		text = otherTexts
	}
	m[text]++
}

// miss records a request that was due and not sent. Its latency is at least the time since it was due.
func (p *recorderPart) miss(from, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missed++
	p.point.Failed++
	p.point.Latency.Record(now.Sub(from))
	count(p.reasons, "not sent: all clients were busy")
}

// wasLate records n requests that were sent late.
func (p *recorderPart) wasLate(n int64, by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late += n
	p.maxLate = max(p.maxLate, by)
}

// cutOff records requests without a response because the run was interrupted.
func (p *recorderPart) cutOff(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut += n
}

// collect adds a point with the results since the previous one.
func (r *recorder) collect(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := now.Sub(r.begun)
	p := Point{At: at, For: at}
	if n := len(r.points); n > 0 {
		p.For -= r.points[n-1].At
	}
	if n := len(r.points); n > 0 && p.For < r.every/2 { // too short for a rate per second
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

// thin joins neighbouring points and doubles the interval.
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

// result returns the result. All callers must have ended.
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
