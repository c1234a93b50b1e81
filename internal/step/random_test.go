package step_test

import (
	"math/rand/v2"

	"github.com/sluiceproject/sluice/internal/step"
)

// odd are limits whose numbers have no common factor, or an unusual one.
var odd = []struct{ count, length int64 }{
	{314159265, 86399999977},
	{1, step.Year},
	{3, step.Year},
	{10_000_000, second},
	{9_999_991, second},
	{7, second},
	{3, 1000},
	{10_000, 1000},
	{9_973, 1009},
	{1 << 32, 3 * day},
	{27, 10 * minute},
	{1000, 999},
}

// drawLength draws a window from 1 ms to a year, often a common length.
func drawLength(rnd *rand.Rand) int64 {
	common := []int64{milli, 10 * milli, 100 * milli, second, 10 * second, minute, hour, day, 7 * day, 30 * day, step.Year}
	if rnd.IntN(2) == 0 {
		return common[rnd.IntN(len(common))]
	}
	return max(milli, spread(rnd, step.Year))
}

// drawRate draws a count and a length with at most 10 per microsecond.
func drawRate(rnd *rand.Rand) (count, length int64) {
	if rnd.IntN(3) == 0 {
		o := odd[rnd.IntN(len(odd))]
		return o.count, o.length
	}
	length = drawLength(rnd)
	return spread(rnd, 10*length), length
}

func drawBucket(rnd *rand.Rand) step.Params {
	p := step.Params{Kind: step.Bucket}
	p.Count, p.Length = drawRate(rnd)
	// At most 100 years of refill, usually much less.
	century := step.Horizon / p.Length * p.Count
	switch rnd.IntN(4) {
	case 0:
		p.Burst = p.Count
	case 1:
		p.Burst = 1
	case 2:
		p.Burst = spread(rnd, min(century, 100))
	default:
		p.Burst = spread(rnd, min(century, 1<<50))
	}
	p.Burst = max(1, min(p.Burst, century))
	return p
}

func drawInitial(rnd *rand.Rand) step.Params {
	p := drawBucket(rnd)
	p.HasInitial = true
	switch rnd.IntN(4) {
	case 0: // empty
	case 1:
		p.Initial = p.Burst
	default:
		p.Initial = rnd.Int64N(p.Burst + 1)
	}
	return p
}

func drawQueue(rnd *rand.Rand) step.Params {
	p := drawBucket(rnd)
	p.Queue = true
	return p
}

func drawInterval(rnd *rand.Rand) step.Params {
	p := drawBucket(rnd)
	p.Kind = step.Interval
	p.Align = step.Align(rnd.IntN(2)) // Epoch or FirstHit
	return p
}

func drawCount(rnd *rand.Rand) int64 {
	switch rnd.IntN(8) {
	case 0:
		return step.MaxWindowCount
	case 1, 2, 3:
		return 1 + rnd.Int64N(20)
	}
	return spread(rnd, step.MaxWindowCount)
}

func drawWindow(rnd *rand.Rand) step.Params {
	p := step.Params{Kind: step.Window, Count: drawCount(rnd), Length: drawLength(rnd)}
	switch rnd.IntN(3) {
	case 1:
		p.Align = step.FirstHit
	case 2:
		p = calendarWindow(p.Count)
	}
	if rnd.IntN(50) == 0 {
		p.Count = 0 // denies everything
	}
	if rnd.IntN(2) == 0 && p.Count > 0 {
		p.SoftExcess = spread(rnd, step.MaxWindowCount)
		if rnd.IntN(2) == 0 {
			p.SoftExcess = 1 + rnd.Int64N(5)
		}
		p.SoftPeriod = spread(rnd, 2*p.Length)
	}
	return p
}

func drawCounter(rnd *rand.Rand) step.Params {
	return step.Params{
		Kind: step.Counter, Count: drawCount(rnd), Length: drawLength(rnd), Nearest: rnd.IntN(2) == 0,
	}
}

func drawSlices(rnd *rand.Rand) step.Params {
	p := drawCounter(rnd)
	p.Kind = step.Slices
	p.Slices = 2 + rnd.Int64N(step.MaxSlices-1)
	p.Length = max(p.Length/p.Slices, 1000) * p.Slices
	return p
}

func drawLog(rnd *rand.Rand) step.Params {
	p := step.Params{Kind: step.Log, Count: spread(rnd, step.MaxLogCount), Length: drawLength(rnd)}
	if rnd.IntN(8) == 0 {
		p.Count = step.MaxLogCount
	}
	return p
}
