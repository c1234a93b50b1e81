package loadgen

import (
	"math"
	"math/bits"
	"time"
)

// Precision is the maximum relative error of percentiles of a [Histogram], which are never too low.
const Precision = 1.0 / (1 << detail)

// detail is the number of significant bits of a value after the leading one.
const detail = 7

// A Histogram counts durations in ranges whose width is proportional to the value. The zero value is empty and ready to use.
type Histogram struct {
	counts   []int64 // by range, up to that of the largest value
	n        int64
	sum      float64
	min, max time.Duration
}

// rangeIndex returns the index of the range of a value: each value below 2^(detail+1) has its own range, and every further
// power of two has 2^detail ranges.
func rangeIndex(d time.Duration) int {
	v := uint64(max(0, d))
	shift := max(0, bits.Len64(v)-detail-1)
	return shift<<detail + int(v>>shift)
}

// highest returns the largest value of a range.
func highest(index int) time.Duration {
	shift := max(0, index>>detail-1)
	v := uint64(index-shift<<detail+1)<<shift - 1
	return time.Duration(min(v, math.MaxInt64))
}

// Record adds a value. Negative values count as 0.
func (h *Histogram) Record(d time.Duration) {
	d = max(0, d)
	i := rangeIndex(d)
	h.grow(i + 1)
	h.counts[i]++
	if h.n == 0 || d < h.min {
		h.min = d
	}
	h.n++
	h.max = max(h.max, d)
	h.sum += float64(d)
}

func (h *Histogram) grow(n int) {
	if n > len(h.counts) {
		h.counts = append(h.counts, make([]int64, n-len(h.counts))...)
	}
}

// Add adds the values of another histogram.
func (h *Histogram) Add(o *Histogram) {
	if o.n == 0 {
		return
	}
	h.grow(len(o.counts))
	for i, n := range o.counts {
		h.counts[i] += n
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.n += o.n
	h.max = max(h.max, o.max)
	h.sum += o.sum
}

// reset clears the histogram and keeps its memory.
func (h *Histogram) reset() {
	clear(h.counts)
	*h = Histogram{counts: h.counts}
}

// Count returns the number of values.
func (h *Histogram) Count() int64 { return h.n }

// Min returns the exact minimum, or 0 if there are no values.
func (h *Histogram) Min() time.Duration { return h.min }

// Max returns the exact maximum, or 0 if there are no values.
func (h *Histogram) Max() time.Duration { return h.max }

// Mean returns the exact mean, or 0 if there are no values.
func (h *Histogram) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.n))
}

// Percentile returns the smallest value that p % of the values do not exceed, with a relative error of 0 to [Precision], or 0
// if there are no values.
func (h *Histogram) Percentile(p float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	// Subtract a little, because 99.9/100*1000 is slightly above 999 in binary and would be rounded up to 1000.
	rank := int64(math.Ceil(p/100*float64(h.n) - 1e-9*float64(h.n)))
	rank = min(max(rank, 1), h.n)
	seen := int64(0)
	for i, n := range h.counts {
		if seen += n; seen >= rank {
			return max(h.min, min(highest(i), h.max))
		}
	}
	return h.max
}

// Below returns the number of values less than d, except those in the same range as d.
func (h *Histogram) Below(d time.Duration) int64 {
	if d > h.max {
		return h.n
	}
	seen := int64(0)
	for i := range min(rangeIndex(d), len(h.counts)) {
		seen += h.counts[i]
	}
	return seen
}

// A Class is a range of values and the number of values in it.
type Class struct {
	From, To time.Duration
	Count    int64
}

// Classes returns the number of values in the classes between 1, 2, 5, 10 … of a unit, from that of the minimum to that of
// the maximum. A value within [Precision] of a border may be counted on its other side.
func (h *Histogram) Classes() (all []Class) {
	if h.n == 0 {
		return nil
	}
	from, below := time.Duration(0), int64(0)
	for to := time.Duration(1); from <= h.max; from, to = to, nextBorder(to) {
		upTo := h.n
		if to <= h.max {
			upTo = h.Below(to)
		}
		if upTo > 0 || to > h.min {
			all = append(all, Class{from, to, upTo - below})
		}
		below = upTo
	}
	return all
}

// nextBorder returns the next of 1, 2, 5, 10, 20, 50, 100 …
func nextBorder(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 10 {
		unit *= 10
	}
	switch d / unit {
	case 1:
		return 2 * unit
	case 2:
		return 5 * unit
	}
	return 10 * unit
}
