package recommend

import (
	"math"
	"slices"
)

// needs returns the rate per second at which a key with a burst is denied nothing, or +Inf if no rate is enough.
//
// The rate is the largest of (cost of an interval − burst) / length of the interval. Each pass finds the interval that is worst
// at the rate so far, and raises the rate to what that interval needs (Dinkelbach's method), until no interval needs more.
func (t *Traffic) needs(key int, burst int64) float64 {
	rate := 0.0
	for range 100 { // it converges in a few passes
		raised, ok := t.raise(key, float64(burst), rate)
		if !ok {
			return rate * 1e6
		}
		if rate = raised; math.IsInf(rate, 1) {
			break
		}
	}
	return rate * 1e6
}

// raise returns the rate that the worst interval at a rate needs. ok is false if that is the rate itself.
func (t *Traffic) raise(key int, burst, rate float64) (raised float64, ok bool) {
	level, worst := 0.0, burst
	var began, last int64   // of the interval that the level counts
	var sum, needed float64 // cost of it
	var length int64
	for n, i := range t.of(key) {
		now, cost := t.micros[i], float64(t.costOf(i))
		level -= float64(now-last) * rate
		if n == 0 || level <= 0 {
			level, sum, began = 0, 0, now
		}
		level, sum, last = level+cost, sum+cost, now
		if level > worst {
			worst, needed, length = level, sum-burst, now-began
		}
	}
	if needed == 0 {
		return rate, false
	}
	raised = needed / float64(length) // +Inf for simultaneous requests
	return raised, raised > rate*(1+1e-9)
}

const (
	curveCount  = 6
	curvePoints = 160
)

// curves computes the rates that keys need for six bursts around the recommended one.
func (a *analysis) curves() {
	if a.For == Concurrency {
		return
	}
	b := a.result.Knee.Burst
	var bursts []int64
	for _, n := range []int64{max(1, b/4), max(1, b/2), b, 2 * b, 4 * b, 8 * b} {
		for slices.Contains(bursts, n) {
			n++
		}
		bursts = append(bursts, n)
	}
	slices.Sort(bursts)
	top := a.topKeys()
	rates := make([]float64, len(a.t.names))
	for _, burst := range bursts {
		for k := range rates {
			rates[k] = a.t.needs(k, burst)
		}
		for i := range top {
			a.result.Top[i].Need = append(a.result.Top[i].Need, finite(rates[top[i]]))
		}
		slices.Sort(rates)
		slices.Reverse(rates)
		a.result.Curves = append(a.result.Curves, Curve{burst, curve(rates)})
	}
}

// topKeys lists the keys with the most requests.
func (a *analysis) topKeys() []int {
	keys := make([]int, len(a.t.names))
	for k := range keys {
		keys[k] = k
	}
	slices.SortStableFunc(keys, func(x, y int) int { return len(a.t.of(y)) - len(a.t.of(x)) })
	keys = keys[:min(len(keys), maxOutliers)]
	for _, k := range keys {
		a.result.Top = append(a.result.Top, KeyNeed{Key: a.Mask(a.t.names[k]), Outlier: a.outlier[k]})
	}
	return keys
}

// curve returns ranks at equal distances on a logarithmic axis, with their rates.
func curve(rates []float64) [][2]any {
	var all [][2]any
	rank := 0
	for i := range curvePoints {
		next := int(math.Round(math.Pow(float64(len(rates)), float64(i)/(curvePoints-1))))
		if next <= rank {
			continue
		}
		rank = next
		all = append(all, [2]any{rank, finite(rates[rank-1])})
	}
	return all
}

func finite(rate float64) *float64 {
	if math.IsInf(rate, 0) {
		return nil
	}
	return &rate
}
