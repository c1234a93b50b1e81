package overload

import (
	"math"
	"time"
)

const (
	warmUp     = 500 * time.Millisecond // of a new gate: at first only those are seen that take little
	shortest   = 100 * time.Millisecond // window
	stale      = 10 * time.Second       // a window that had too little by then tells nothing
	fewest     = 20                     // requests of a window
	firstPause = time.Second            // between two probes
	longPause  = time.Minute            // between two that find nothing new
	rising     = 10 * time.Second       // how fast a longer time, or more failures, are taken for usual
	falling    = time.Second            // and how fast a shorter one, or fewer
	failures   = 0.05                   // that are none of the load's doing
	doubtful   = 0.35                   // by how much a logarithm may be wrong
	same       = 0.2                    // logarithms that differ by less are taken for the same
)

// tolerance is how many times as long as without load answers may take, as a logarithm. With twice as long, twice as many
// are in flight as the upstream works on: so it is never idle, and nobody waits longer than he is served.
var tolerance = math.Log(2)

// window is what was seen for a while. Times are logarithms: their mean is not swayed by a few that take very long, and
// says by what factor others are longer.
type window struct {
	began        time.Time
	samples      float64
	sum, squares float64
	total        float64 // of the times themselves
	flight       float64 // the sum of how many were in flight when the samples left
	life         float64 // the sum of how long all were in flight who left
	ended        float64
	failed       float64
	peak         float64
	shed         int64
}

func (w *window) add(o Outcome, took, flight, base float64) {
	w.peak = max(w.peak, flight)
	if o == Aside {
		return
	}
	w.ended++
	log := math.Log(took)
	switch {
	case o == Failed:
		w.failed++
		return
	case o == Left && log < base: // how long it would have taken is not known
		return
	}
	w.samples++
	w.sum += log
	w.squares += log * log
	w.total += took
	w.flight += flight
}

func (w *window) mean() float64 { return w.sum / w.samples }

// doubt is twice the mean's standard error.
func (w *window) doubt() float64 {
	mean := w.mean()
	return 2 * math.Sqrt(max(0, w.squares/w.samples-mean*mean)/w.samples)
}

// enough tells whether the window can be judged: it takes more requests where their times differ more.
func (w *window) enough() bool {
	return w.samples+w.failed >= fewest && (w.samples < fewest/2 || w.doubt() < doubtful)
}

// steady tells whether as many came as left, by Little's law: then times belong to how many are in flight.
func (w *window) steady(length time.Duration) bool {
	return math.Abs(math.Log(w.life/float64(length)*w.samples/w.flight)) < same
}

// settle is how long it takes until those who leave have entered under a new limit.
func (w *window) settle() time.Duration {
	return min(stale/2, time.Duration(1.5*w.total/w.samples))
}

// learner finds how many may be in flight. It has no clock and no lock.
//
// An upstream with room answers in the same time however many are in flight; one without takes longer in proportion.
// So the limit falls when answers take longer than twice the usual time, and rises otherwise. What is usual is learnt
// while nobody is turned away. While somebody is, it cannot be, or an overload would become usual; instead the limit is
// halved until that makes answers no faster, a probe, which tells the two apart: if the time falls along, requests were
// queueing, and if it does not, that is simply how long they take now.
type learner struct {
	min, max float64
	limit    float64
	base     float64 // the logarithm of the usual time in nanoseconds; 0: not known
	proven   float64 // the base that the last probe has found; 0: none has
	failing  float64 // the usual share of failures

	cuts    int     // windows in a row that were cut
	before  float64 // the limit before them
	floored int     // windows in a row that failed at the lowest limit
	probe   *probe
	probed  time.Time     // the last probe
	pause   time.Duration // until the next
}

// probe is a window under another limit, beside the one before.
type probe struct {
	limit, flight, time float64
	tries               int // windows that were not steady
}

// quiet is for times when too little happened.
func (l *learner) quiet(length time.Duration) {
	l.probe, l.cuts, l.pause = nil, 0, firstPause
	l.recover(length)
}

// recover raises the limit by its square root for each short window that has passed.
func (l *learner) recover(length time.Duration) {
	root := math.Sqrt(l.limit) + float64(length)/float64(shortest)/2
	l.limit = min(l.max, root*root)
}

// learn changes the limit by what was seen, and tells for how long nothing is to be learnt afterwards.
func (l *learner) learn(w *window, now time.Time, length time.Duration) (settle time.Duration) {
	bound := w.shed > 0 || w.peak >= l.limit
	if l.failed(w, length) {
		l.probe = nil
		return shortest
	}
	if w.samples < fewest/2 { // nearly all fail, as ever
		l.recover(length)
		return 0
	}
	mean := w.mean()
	steady := w.steady(length)
	if l.base == 0 {
		if !steady { // at first only those have left who take little
			return 0
		}
		l.base = mean
	}
	late := mean-w.doubt() > l.base+tolerance
	proven := l.proven != 0 && l.base < l.proven+same
	switch {
	case l.probe != nil && !steady && l.probe.tries < 5:
		l.probe.tries++
		return 0
	case l.probe != nil:
		l.judge(w, now)
	case bound && steady && (late && l.cuts > 1 || !proven) && now.Sub(l.probed) > l.pause:
		l.begin(w, now)
	case late:
		from := min(l.limit, w.peak/shares[Normal])
		if l.cuts == 0 {
			l.before = min(l.limit, 2*from)
		}
		l.limit = max(l.min, from*max(0.5, math.Exp(l.base+tolerance-mean)))
		l.cuts++
		return w.settle()
	case bound:
		if mean+w.doubt() > l.base+tolerance {
			length = min(length, shortest) // it may already be enough
		}
		l.recover(length)
		l.follow(mean, length, steady, false)
		l.cuts = 0
		return 0
	default:
		l.recover(length)
		l.follow(mean, length, steady, true)
		l.cuts = 0
		return 0
	}
	l.cuts = 0
	return w.settle()
}

// follow has what is usual follow what is seen.
func (l *learner) follow(mean float64, length time.Duration, steady, up bool) {
	switch {
	case !steady:
	case mean < l.base:
		l.base += (mean - l.base) * weight(length, falling)
	case up:
		l.base += (mean - l.base) * weight(length, rising)
	}
}

func weight(length, constant time.Duration) float64 {
	return 1 - math.Exp(-float64(length)/float64(constant))
}

// begin begins a probe: half the limit, or twice, if half is less than what is never too much.
func (l *learner) begin(w *window, now time.Time) {
	flight := w.flight / w.samples
	l.probe = &probe{limit: l.limit, flight: flight, time: w.mean()}
	l.probed = now
	half := min(l.limit, flight/shares[Normal]) / 2
	if half < l.min {
		half = min(l.max, 2*l.limit)
	}
	l.limit = half
}

// judge ends a probe, or goes on to half of its limit: until fewer in flight do not make answers faster.
func (l *learner) judge(w *window, now time.Time) {
	p, mean := l.probe, w.mean()
	l.probe = nil
	fewer := math.Log(p.flight / (w.flight / w.samples))
	faster := p.time - mean
	switch slope := faster / fewer; {
	case math.Abs(fewer) < same || slope < -0.5: // as many as before, or something else has changed
	case slope < 1./3: // no queue
		if mean > l.base+same { // so there was no reason to lower the limit
			p.limit = max(p.limit, l.before)
		}
		l.prove(mean)
	case fewer > 0 && l.limit/2 >= l.min:
		l.begin(w, now)
		return
	case min(mean, p.time) < l.base+tolerance:
		l.prove(min(l.base, mean, p.time))
	}
	l.limit = min(p.limit, l.max)
}

// prove is for the usual time that a probe has found. The longer nothing new is found, the rarer probes become.
func (l *learner) prove(base float64) {
	if l.pause = min(longPause, 2*l.pause); math.Abs(base-l.base) > same {
		l.pause = firstPause
	}
	l.base, l.proven = base, base
}

// failed lowers the limit if more fail than usual, and tells whether it did. At the lowest limit it gives up: what fails
// there is none of the load's doing.
func (l *learner) failed(w *window, length time.Duration) bool {
	share := w.failed / w.ended
	doubt := 2 * math.Sqrt(share*(1-share)/w.ended)
	if share-doubt <= l.failing+failures {
		l.floored = 0
		constant := rising
		if share < l.failing {
			constant = falling
		}
		l.failing += (share - l.failing) * weight(length, constant)
		return false
	}
	if l.limit <= l.min {
		if l.floored++; l.floored >= 2 {
			l.failing, l.floored = share, 0
		}
		return true
	}
	l.limit = max(l.min, min(l.limit, w.peak/shares[Normal])*0.7)
	return true
}
