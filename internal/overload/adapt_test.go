package overload

import (
	"math"
	"testing"
	"time"
)

// windowOf returns a window with 50 samples of the given latency and number in flight. In an unsteady window half as many
// requests started as ended.
func windowOf(took time.Duration, flight float64, steady bool) *window {
	w := &window{}
	for range 50 {
		w.add(Responded, float64(took), flight, 0)
	}
	w.durationSum = flight * float64(minWindow)
	if !steady {
		w.durationSum /= 2
	}
	return w
}

// estimatorIn returns an estimator in a mode with a limit of 100 and a base latency of 10 ms, which a probe has confirmed.
func estimatorIn(m mode, now time.Time) *estimator {
	base := math.Log(float64(10 * time.Millisecond))
	return &estimator{
		min: 10, max: 1000, limit: 100, mode: m, baseLatency: base, probedBase: base, lastProbe: now.Add(-time.Hour), probePause: minProbePause,
		limitBeforeCuts: 300, probe: probe{limit: 200, inFlight: 200, latency: math.Log(float64(30 * time.Millisecond))},
	}
}

// Each mode and reading have one step: a change of the limit, and the next mode.
func TestModes(t *testing.T) {
	now := time.Now()
	windows := map[reading]func(e *estimator) *window{
		free:  func(*estimator) *window { return windowOf(15*time.Millisecond, 40, true) },
		bound: func(*estimator) *window { return windowOf(15*time.Millisecond, 100, true) },
		late: func(e *estimator) *window {
			e.lastProbe = now
			return windowOf(30*time.Millisecond, 100, true)
		},
		stuck: func(*estimator) *window { return windowOf(30*time.Millisecond, 100, true) },
		unproven: func(e *estimator) *window {
			e.probedBase = 0
			return windowOf(15*time.Millisecond, 100, true)
		},
	}
	const (
		raised  = 110.25   // by its square root, over one window of minimum length
		lowered = 200. / 3 // by the factor 20 ms/30 ms: tolerated over measured latency
		halved  = 50.      // by a probe
	)
	for _, c := range []struct {
		mode    mode
		reading reading
		next    mode
		limit   float64
		follows bool    // the base latency follows up
		before  float64 // limitBeforeCuts
	}{
		{following, free, following, raised, true, 300},
		{following, bound, following, raised, false, 300},
		{following, late, cutOnce, lowered, false, 100},
		{following, stuck, cutOnce, lowered, false, 100},
		{following, unproven, probing, halved, false, 300},
		{cutOnce, free, following, raised, true, 300},
		{cutOnce, bound, following, raised, false, 300},
		{cutOnce, late, cutting, lowered, false, 300},
		{cutOnce, stuck, cutting, lowered, false, 300},
		{cutOnce, unproven, probing, halved, false, 300},
		{cutting, free, following, raised, true, 300},
		{cutting, bound, following, raised, false, 300},
		{cutting, late, cutting, lowered, false, 300},
		{cutting, stuck, probing, halved, false, 300},
		{cutting, unproven, probing, halved, false, 300},
	} {
		t.Run(c.mode.String()+", "+c.reading.String(), func(t *testing.T) {
			e := estimatorIn(c.mode, now)
			w := windows[c.reading](e)
			base := e.baseLatency
			if got := e.read(w, now, true); got != c.reading {
				t.Fatalf("reading %v", got)
			}
			settle := e.update(w, now, minWindow)
			if e.mode != c.next || math.Abs(e.limit-c.limit) > 1e-6 {
				t.Errorf("%v with a limit of %v, want %v with %v", e.mode, e.limit, c.next, c.limit)
			}
			if (e.baseLatency > base) != c.follows || e.limitBeforeCuts != c.before {
				t.Errorf("base latency %v after %v, limit before cuts %v", e.baseLatency, base, e.limitBeforeCuts)
			}
			if (settle > 0) != (c.limit < raised) {
				t.Errorf("settling time %v", settle)
			}
		})
	}
}

// A probe waits for a steady window, and halves the limit again while that lowers the latency.
func TestProbeModes(t *testing.T) {
	now := time.Now()
	failing := windowOf(10*time.Millisecond, 100, true)
	failing.failed, failing.ended = 50, 100
	for _, c := range []struct {
		name   string
		mode   mode
		tries  int
		window *window
		next   mode
		limit  float64
	}{
		{"not steady", probing, 0, windowOf(30*time.Millisecond, 100, false), probing, 100},
		{"never steady", probing, maxTries, windowOf(30*time.Millisecond, 100, false), following, 300},
		{"no faster", probing, 0, windowOf(30*time.Millisecond, 100, true), following, 300},
		{"faster", probing, 0, windowOf(15*time.Millisecond, 100, true), probing, 50},
		{"as many in flight", probing, 0, windowOf(15*time.Millisecond, 200, true), following, 200},
		{"failures", probing, 0, failing, following, 70},
		{"failures after cuts", cutting, 0, failing, cutting, 70},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := estimatorIn(c.mode, now)
			e.probe.tries = c.tries
			e.update(c.window, now, minWindow)
			if e.mode != c.next || math.Abs(e.limit-c.limit) > 1e-6 {
				t.Errorf("%v with a limit of %v, want %v with %v", e.mode, e.limit, c.next, c.limit)
			}
		})
	}
	for m := range modes {
		e := estimatorIn(m, now)
		if e.idle(minWindow); e.mode != following {
			t.Errorf("%v after %v and a window with too few samples", e.mode, m)
		}
	}
}

// The first steady window sets the base latency; until then nothing changes.
func TestFirstBase(t *testing.T) {
	now := time.Now()
	e := &estimator{min: 10, max: 100, limit: 100, probePause: minProbePause}
	if e.update(windowOf(10*time.Millisecond, 40, false), now, minWindow); e.baseLatency != 0 || e.mode != following {
		t.Errorf("%v with a base latency of %v", e.mode, e.baseLatency)
	}
	if e.update(windowOf(10*time.Millisecond, 40, true), now, minWindow); math.Abs(e.baseLatency-math.Log(1e7)) > 1e-9 || e.mode != following {
		t.Errorf("%v with a base latency of %v", e.mode, e.baseLatency)
	}
}
