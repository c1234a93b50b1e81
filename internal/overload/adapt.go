package overload

import (
	"math"
	"time"
)

const (
	warmUp           = 500 * time.Millisecond // of a new limiter: at first only short requests have ended
	minWindow        = 100 * time.Millisecond // window
	maxWindow        = 10 * time.Second       // a window with too few samples by then is dropped
	minSamples       = 20                     // requests of a window
	minProbePause    = time.Second            // between two probes
	maxProbePause    = time.Minute            // between two that find nothing new
	riseTime         = 10 * time.Second       // time constant with which the baseline follows longer times and more failures
	fallTime         = time.Second            // and shorter times and fewer failures
	baselineFailures = 0.05                   // share of failures beyond the baseline that load does not explain
	maxMeanError     = 0.35                   // of a logarithm
	sameLatencyDelta = 0.2                    // logarithms that differ by less are taken for the same
)

// tolerance is how many times as long as without load answers may take, as a logarithm. With twice as long, twice as many
// are in flight as the upstream works on: so it is never idle, and no request waits longer than it is served.
var tolerance = math.Log(2)

// window has the samples of a while. Times are logarithms: their mean is not swayed by a few that take very long, and
// says by what factor others are longer.
type window struct {
	start        time.Time
	samples      float64
	sum, squares float64
	total        float64 // of the times themselves
	inFlightSum  float64 // the sum of how many were in flight when each sample ended
	durationSum  float64 // the sum of how long each was in flight
	ended        float64
	failed       float64
	peak         float64
	shed         int64
}

func (w *window) add(o Outcome, took, flight, base float64) {
	w.peak = max(w.peak, flight)
	if o == NotForwarded {
		return
	}
	w.ended++
	log := math.Log(took)
	switch {
	case o == Failed:
		w.failed++
		return
	case o == ClientClosed && log < base: // how long it would have taken is not known
		return
	}
	w.samples++
	w.sum += log
	w.squares += log * log
	w.total += took
	w.inFlightSum += flight
}

func (w *window) mean() float64 { return w.sum / w.samples }

// meanError is twice the mean's standard error.
func (w *window) meanError() float64 {
	mean := w.mean()
	return 2 * math.Sqrt(max(0, w.squares/w.samples-mean*mean)/w.samples)
}

// hasEnough reports whether the window can be evaluated: it takes more samples where their times differ more.
func (w *window) hasEnough() bool {
	return w.samples+w.failed >= minSamples && (w.samples < minSamples/2 || w.meanError() < maxMeanError)
}

// isSteady reports whether as many requests began as ended, by Little's law: then times belong to how many are in flight.
func (w *window) isSteady(length time.Duration) bool {
	return math.Abs(math.Log(w.durationSum/float64(length)*w.samples/w.inFlightSum)) < sameLatencyDelta
}

// settlingTime is how long it takes until the requests that end were admitted under a new limit.
func (w *window) settlingTime() time.Duration {
	return min(maxWindow/2, time.Duration(1.5*w.total/w.samples))
}

// estimator finds how many may be in flight. It has no clock and no lock.
//
// An upstream with room answers in the same time however many are in flight; one without takes longer in proportion.
// So the limit falls when responses take longer than twice the base latency, and rises otherwise. The base is learnt
// while no request is shed. While some are, it cannot be, or an overload would become the base; instead the limit is
// halved until that makes responses no faster, a probe, which distinguishes the two: if the time falls along, requests were
// queueing, and if it does not, that is simply how long they take now.
type estimator struct {
	min, max     float64
	limit        float64
	baseLatency  float64 // the logarithm of the latency without load in nanoseconds; 0: unknown
	probedBase   float64 // the base latency that the last probe found; 0: none has
	baseFailures float64 // the share of failures without load

	mode            mode
	limitBeforeCuts float64       // the limit before the windows in a row that cut it
	failuresAtMin   int           // consecutive windows that failed at the lowest limit
	probe           probe         // the probe under way, or the last
	lastProbe       time.Time     // when it began
	probePause      time.Duration // until the next
}

// probe has the window that the windows under another limit are compared with.
type probe struct {
	limit, inFlight, latency float64
	tries                    int // windows that were not steady
}

// maxTries is how many windows that are not steady a probe passes over.
const maxTries = 5

// mode is what the estimator does with the limit.
type mode uint8

const (
	following mode = iota // the limit rises, and the base latency follows the windows
	cutOnce               // the last window cut the limit
	cutting               // the last two windows did, or more
	probing               // the next steady window is compared with the one before
	modes
)

var modeNames = [modes]string{"following", "cut once", "cutting", "probing"}

func (m mode) String() string { return modeNames[m] }

// reading is what a window says about the limit.
type reading uint8

const (
	free     reading = iota // responses take no longer than they may, and the limit was not reached
	bound                   // they take no longer, and the limit was reached
	late                    // they take longer
	stuck                   // they take longer under a limit that was reached, and a probe may begin
	unproven                // the limit was reached, a probe may begin, and none has confirmed the base latency
	readings
)

var readingNames = [readings]string{"free", "bound", "late", "stuck", "unproven"}

func (r reading) String() string { return readingNames[r] }

// move is what a window does to the limit.
type move uint8

const (
	raise       move = iota // raise it, and have the base latency follow to longer times too
	raiseFilled             // raise it, and have the base latency follow to shorter times alone: some may wait in the upstream
	cut                     // lower it by how late responses are
	compare                 // begin a probe
)

// step is a move, and the mode after it.
type step struct {
	move
	next mode
}

// steps says what is done after a window, by the mode and what the window says. That the limit was cut for nothing, because
// responses simply take that long now, is found out by a probe when two cuts have not helped. Windows of a probe have
// [estimator.updateProbe].
var steps = [probing][readings]step{
	following: {free: {raise, following}, bound: {raiseFilled, following}, late: {cut, cutOnce}, stuck: {cut, cutOnce}, unproven: {compare, probing}},
	cutOnce:   {free: {raise, following}, bound: {raiseFilled, following}, late: {cut, cutting}, stuck: {cut, cutting}, unproven: {compare, probing}},
	cutting:   {free: {raise, following}, bound: {raiseFilled, following}, late: {cut, cutting}, stuck: {compare, probing}, unproven: {compare, probing}},
}

// idle is called for a window with too few samples.
func (e *estimator) idle(length time.Duration) {
	e.mode, e.probePause = following, minProbePause
	e.raise(length)
}

// raise raises the limit by its square root for each short window that has passed.
func (e *estimator) raise(length time.Duration) {
	root := math.Sqrt(e.limit) + float64(length)/float64(minWindow)/2
	e.limit = min(e.max, root*root)
}

// update changes the limit by a window's samples, and returns for how long the next samples do not count.
func (e *estimator) update(w *window, now time.Time, length time.Duration) (settle time.Duration) {
	if e.cutForFailures(w, length) {
		if e.mode == probing {
			e.mode = following
		}
		return minWindow
	}
	if w.samples < minSamples/2 { // nearly all fail, as ever
		e.raise(length)
		return 0
	}
	steady := w.isSteady(length)
	if e.baseLatency == 0 {
		if !steady { // at first only short requests have ended
			return 0
		}
		e.baseLatency = w.mean()
	}
	if e.mode == probing {
		return e.updateProbe(w, now, steady)
	}
	s := steps[e.mode][e.read(w, now, steady)]
	switch s.move {
	case raise:
		e.raise(length)
		e.followBase(w.mean(), length, steady, true)
	case raiseFilled:
		if w.mean()+w.meanError() > e.baseLatency+tolerance {
			length = min(length, minWindow) // it may already be enough
		}
		e.raise(length)
		e.followBase(w.mean(), length, steady, false)
	case cut:
		e.cut(w)
		settle = w.settlingTime()
	case compare:
		e.startProbe(w, now)
		settle = w.settlingTime()
	}
	e.mode = s.next
	return settle
}

// read finds what a window says about the limit, while no probe is under way.
func (e *estimator) read(w *window, now time.Time, steady bool) reading {
	isBound := w.shed > 0 || w.peak >= e.limit
	isLate := w.mean()-w.meanError() > e.baseLatency+tolerance
	isProven := e.probedBase != 0 && e.baseLatency < e.probedBase+sameLatencyDelta
	mayProbe := isBound && steady && now.Sub(e.lastProbe) > e.probePause
	switch {
	case mayProbe && !isProven:
		return unproven
	case mayProbe && isLate:
		return stuck
	case isLate:
		return late
	case isBound:
		return bound
	}
	return free
}

// cut lowers the limit by how late responses are, at most to half of what was in flight.
func (e *estimator) cut(w *window) {
	from := min(e.limit, w.peak/shares[Normal])
	if e.mode == following {
		e.limitBeforeCuts = min(e.limit, 2*from)
	}
	e.limit = max(e.min, from*max(0.5, math.Exp(e.baseLatency+tolerance-w.mean())))
}

// updateProbe is update for the windows of a probe.
func (e *estimator) updateProbe(w *window, now time.Time, steady bool) (settle time.Duration) {
	if !steady && e.probe.tries < maxTries {
		e.probe.tries++
		return 0
	}
	e.mode = e.finishProbe(w, now)
	return w.settlingTime()
}

// followBase moves the base latency towards a window's mean.
func (e *estimator) followBase(mean float64, length time.Duration, steady, up bool) {
	switch {
	case !steady:
	case mean < e.baseLatency:
		e.baseLatency += (mean - e.baseLatency) * weight(length, fallTime)
	case up:
		e.baseLatency += (mean - e.baseLatency) * weight(length, riseTime)
	}
}

func weight(length, constant time.Duration) float64 {
	return 1 - math.Exp(-float64(length)/float64(constant))
}

// startProbe tries half the limit, or twice, if half is less than the minimum.
func (e *estimator) startProbe(w *window, now time.Time) {
	flight := w.inFlightSum / w.samples
	e.probe = probe{limit: e.limit, inFlight: flight, latency: w.mean()}
	e.lastProbe = now
	half := min(e.limit, flight/shares[Normal]) / 2
	if half < e.min {
		half = min(e.max, 2*e.limit)
	}
	e.limit = half
}

// finishProbe ends a probe, or goes on to half of its limit: until fewer in flight do not make responses faster. It returns
// the mode after it.
func (e *estimator) finishProbe(w *window, now time.Time) mode {
	p, mean := e.probe, w.mean()
	fewer := math.Log(p.inFlight / (w.inFlightSum / w.samples))
	faster := p.latency - mean
	switch slope := faster / fewer; {
	case math.Abs(fewer) < sameLatencyDelta || slope < -0.5: // as many as before, or something else has changed
	case slope < 1./3: // no queue
		if mean > e.baseLatency+sameLatencyDelta { // so there was no reason to lower the limit
			p.limit = max(p.limit, e.limitBeforeCuts)
		}
		e.setBase(mean)
	case fewer > 0 && e.limit/2 >= e.min:
		e.startProbe(w, now)
		return probing
	case min(mean, p.latency) < e.baseLatency+tolerance:
		e.setBase(min(e.baseLatency, mean, p.latency))
	}
	e.limit = min(p.limit, e.max)
	return following
}

// setBase sets the base latency that a probe has found. The longer nothing new is found, the rarer probes become.
func (e *estimator) setBase(base float64) {
	if e.probePause = min(maxProbePause, 2*e.probePause); math.Abs(base-e.baseLatency) > sameLatencyDelta {
		e.probePause = minProbePause
	}
	e.baseLatency, e.probedBase = base, base
}

// cutForFailures lowers the limit if more fail than without load, and reports whether it did. At the lowest limit it gives
// up: what fails there is none of the load's doing.
func (e *estimator) cutForFailures(w *window, length time.Duration) bool {
	share := w.failed / w.ended
	doubt := 2 * math.Sqrt(share*(1-share)/w.ended)
	if share-doubt <= e.baseFailures+baselineFailures {
		e.failuresAtMin = 0
		constant := riseTime
		if share < e.baseFailures {
			constant = fallTime
		}
		e.baseFailures += (share - e.baseFailures) * weight(length, constant)
		return false
	}
	if e.limit <= e.min {
		if e.failuresAtMin++; e.failuresAtMin >= 2 {
			e.baseFailures, e.failuresAtMin = share, 0
		}
		return true
	}
	e.limit = max(e.min, min(e.limit, w.peak/shares[Normal])*0.7)
	return true
}
