package overload

import (
	"math"
	"time"
)

const (
	warmUp           = 500 * time.Millisecond // time without samples of a new limiter: at first only short requests have ended
	minWindow        = 100 * time.Millisecond // minimum length of a window
	maxWindow        = 10 * time.Second       // a window with too few samples by then is dropped
	minSamples       = 20                     // minimum number of requests per window
	minProbePause    = time.Second            // minimum time between probes
	maxProbePause    = time.Minute            // maximum time between probes, while they confirm the base latency
	riseTime         = 10 * time.Second       // time constant with which the baseline follows higher latency and more failures
	fallTime         = time.Second            // time constant for lower latency and fewer failures
	baselineFailures = 0.05                   // share of failures above the baseline that is not attributed to load
	maxMeanError     = 0.35                   // maximum error of the mean of the logarithms
	sameLatencyDelta = 0.2                    // logarithms that differ by less are considered equal
)

// tolerance is the logarithm of the tolerated latency relative to the base latency. At a factor of 2, twice as many requests
// are in flight as the upstream processes, so that it is never idle and no request waits longer than it is processed.
var tolerance = math.Log(2)

// window collects the samples of a time window. Latencies are logarithms: a few very long ones hardly affect their mean, and
// differences of means are factors.
type window struct {
	start        time.Time
	samples      float64
	sum, squares float64 // of the logarithms of the latencies
	total        float64 // sum of the latencies
	inFlightSum  float64 // sum of the number in flight at the end of each sample
	durationSum  float64 // sum of the times in flight
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
	case o == ClientClosed && log < base: // its latency is unknown
		return
	}
	w.samples++
	w.sum += log
	w.squares += log * log
	w.total += took
	w.inFlightSum += flight
}

func (w *window) mean() float64 { return w.sum / w.samples }

// meanError returns twice the standard error of the mean.
func (w *window) meanError() float64 {
	mean := w.mean()
	return 2 * math.Sqrt(max(0, w.squares/w.samples-mean*mean)/w.samples)
}

// hasEnough reports whether the window has enough samples. It needs more if their latencies vary more.
func (w *window) hasEnough() bool {
	return w.samples+w.failed >= minSamples && (w.samples < minSamples/2 || w.meanError() < maxMeanError)
}

// isSteady reports whether arrivals and completions balance, by Little's law. Only then does the latency correspond to the
// number of requests in flight.
func (w *window) isSteady(length time.Duration) bool {
	return math.Abs(math.Log(w.durationSum/float64(length)*w.samples/w.inFlightSum)) < sameLatencyDelta
}

// settlingTime returns the time after a change of the limit until completed requests were admitted under the new limit.
func (w *window) settlingTime() time.Duration {
	return min(maxWindow/2, time.Duration(1.5*w.total/w.samples))
}

// estimator computes the limit on requests in flight. It has no clock and no lock.
//
// The latency of an upstream with spare capacity does not depend on the number of requests in flight; at full capacity it
// grows in proportion. So the limit falls when the latency exceeds twice the base latency, and rises otherwise. The base
// latency follows the measured latency while no request is shed. While requests are shed it must not, because an overload
// would become the base. Instead a probe halves the limit until the latency stops falling: if the latency falls with the
// limit, requests were queueing; if it does not, the latency without load has changed.
type estimator struct {
	min, max     float64
	limit        float64
	baseLatency  float64 // logarithm of the latency without load in nanoseconds; 0: unknown
	probedBase   float64 // base latency found by the last probe; 0: none
	baseFailures float64 // share of failures without load

	mode            mode
	limitBeforeCuts float64       // limit before the consecutive windows that cut it
	failuresAtMin   int           // consecutive windows with too many failures at the minimum limit
	probe           probe         // the current or last probe
	lastProbe       time.Time     // when it started
	probePause      time.Duration // minimum time until the next probe
}

// probe holds the window before a probe, with which the windows under the probe's limit are compared.
type probe struct {
	limit, inFlight, latency float64
	tries                    int // number of windows that were not steady
}

// maxTries is the maximum number of unsteady windows that a probe ignores.
const maxTries = 5

// mode is the state of the estimator.
type mode uint8

const (
	following mode = iota // the limit rises, and the base latency follows the windows
	cutOnce               // the last window cut the limit
	cutting               // the last two or more windows cut the limit
	probing               // the next steady window is compared with the one before
	modes
)

var modeNames = [modes]string{"following", "cut once", "cutting", "probing"}

func (m mode) String() string { return modeNames[m] }

// reading is the result of a window.
type reading uint8

const (
	free     reading = iota // the latency is tolerable, and the limit was not reached
	bound                   // the latency is tolerable, and the limit was reached
	late                    // the latency is too high
	stuck                   // the latency is too high, the limit was reached, and a probe may start
	unproven                // the limit was reached, a probe may start, and none has confirmed the base latency
	readings
)

var readingNames = [readings]string{"free", "bound", "late", "stuck", "unproven"}

func (r reading) String() string { return readingNames[r] }

// move is the change of the limit after a window.
type move uint8

const (
	raise       move = iota // raise it; the base latency follows up and down
	raiseFilled             // raise it; the base latency follows only down, because requests may be queueing in the upstream
	cut                     // lower it in proportion to the excess latency
	compare                 // start a probe
)

// step is a move, and the mode after it.
type step struct {
	move
	next mode
}

// steps is the transition table by mode and reading. If two cuts have not lowered the latency, a probe finds out whether the
// latency without load has changed. Windows of a probe are handled by [estimator.updateProbe].
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

// update adapts the limit to the samples of a window and returns the time during which further samples are ignored.
func (e *estimator) update(w *window, now time.Time, length time.Duration) (settle time.Duration) {
	if e.cutForFailures(w, length) {
		if e.mode == probing {
			e.mode = following
		}
		return minWindow
	}
	if w.samples < minSamples/2 { // nearly all requests fail, as in the baseline
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
			length = min(length, minWindow) // a small step, because the limit may already be high enough
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

// read classifies a window while no probe is running.
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

// cut lowers the limit in proportion to the excess latency, at most to half of the number in flight.
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

// startProbe halves the limit, or doubles it if half is less than the minimum.
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

// finishProbe ends a probe, or halves the limit again while that lowers the latency. It returns the next mode.
func (e *estimator) finishProbe(w *window, now time.Time) mode {
	p, mean := e.probe, w.mean()
	fewer := math.Log(p.inFlight / (w.inFlightSum / w.samples))
	faster := p.latency - mean
	switch slope := faster / fewer; {
	case math.Abs(fewer) < sameLatencyDelta || slope < -0.5: // inconclusive: as many in flight as before, or another change
	case slope < 1./3: // requests were not queueing
		if mean > e.baseLatency+sameLatencyDelta { // the limit was lowered without need
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

// setBase sets the base latency that a probe has found. The pause between probes doubles while they confirm it.
func (e *estimator) setBase(base float64) {
	if e.probePause = min(maxProbePause, 2*e.probePause); math.Abs(base-e.baseLatency) > sameLatencyDelta {
		e.probePause = minProbePause
	}
	e.baseLatency, e.probedBase = base, base
}

// cutForFailures lowers the limit if the share of failures exceeds the baseline, and reports whether it does. At the minimum
// limit it accepts the share as the new baseline after two windows, because load does not cause these failures.
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
