package loadgen

import (
	"math"
	"math/bits"
	"time"
)

// Precision is how far a value that a [Histogram] tells may be above the true one, as a share of it.
const Precision = 1.0 / (1 << detail)

// detail is how many binary digits of a value are kept, beside the leading one.
const detail = 7

// A Histogram counts durations in ranges whose width grows with their value. Its zero value is empty.
type Histogram struct {
	counts   []int64 // as many as the largest value needs
	n        int64
	sum      float64
	min, max time.Duration
}

// slot is where a value is counted: values below 2^(detail+1) each have one, and every further power of two has 2^detail.
func slot(d time.Duration) int {
	v := uint64(max(0, d))
	shift := max(0, bits.Len64(v)-detail-1)
	return shift<<detail + int(v>>shift)
}

// highest is the largest value that is counted in a slot.
func highest(slot int) time.Duration {
	shift := max(0, slot>>detail-1)
	v := uint64(slot-shift<<detail+1)<<shift - 1
	return time.Duration(min(v, math.MaxInt64))
}

// Record counts a value. Negative ones count as 0.
func (h *Histogram) Record(d time.Duration) {
	d = max(0, d)
	i := slot(d)
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

// Add counts all that another histogram has counted.
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

// reset empties it and keeps its memory.
func (h *Histogram) reset() {
	clear(h.counts)
	*h = Histogram{counts: h.counts}
}

// Count is how many values there are.
func (h *Histogram) Count() int64 { return h.n }

// Min is the smallest value, exactly. All of these are 0 if there are none.
func (h *Histogram) Min() time.Duration { return h.min }

// Max is the largest value, exactly.
func (h *Histogram) Max() time.Duration { return h.max }

// Mean is the mean, exactly.
func (h *Histogram) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.n))
}

// Percentile is the least value that p percent of all do not exceed, or up to [Precision] more.
func (h *Histogram) Percentile(p float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	// A little less, or 99.9 % of 1000 would be 1000 of them, because 99.9/100*1000 is more than 999 in binary.
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

// Below is how many values are less than d, give or take those that share a range with it.
func (h *Histogram) Below(d time.Duration) int64 {
	if d > h.max {
		return h.n
	}
	seen := int64(0)
	for i := range min(slot(d), len(h.counts)) {
		seen += h.counts[i]
	}
	return seen
}

// A Class is a range of values and how many there are in it.
type Class struct {
	From, To time.Duration
	Count    int64
}

// Classes counts the values between 1, 2, 5, 10 … of a unit, from the range that holds the smallest to the one that holds
// the largest. A value within [Precision] of a border may be counted on its other side.
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

// nextBorder is the next of 1, 2, 5, 10, 20, 50, 100 …
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
