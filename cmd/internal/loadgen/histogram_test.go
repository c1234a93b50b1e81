package loadgen_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
)

// latencies draws latencies of all magnitudes, some of them equal.
func latencies() *rapid.Generator[[]time.Duration] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
		bits := rapid.IntRange(0, 46).Draw(t, "bits") // up to about 1 day
		return time.Duration(rapid.Int64Range(0, 1<<bits).Draw(t, "latency"))
	}), 1, 300)
}

// exactly returns the exact percentile: the smallest value that p % do not exceed.
func exactly(sorted []time.Duration, p float64) time.Duration {
	rank := int(math.Ceil(math.Round(p*1e6*float64(len(sorted))/100) / 1e6))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Percentiles have a relative error of 0 to Precision, even if the histogram is the sum of several.
func TestPercentilesAreWithinPrecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := latencies().Draw(t, "values")
		var parts [3]loadgen.Histogram
		sum := 0.0
		for i, v := range values {
			parts[i%3].Record(v)
			sum += float64(v)
		}
		var h loadgen.Histogram
		for i := range parts {
			h.Add(&parts[i])
		}
		slices.Sort(values)
		if h.Count() != int64(len(values)) || h.Min() != values[0] || h.Max() != values[len(values)-1] {
			t.Fatalf("%d values from %v to %v, want %d from %v to %v",
				h.Count(), h.Min(), h.Max(), len(values), values[0], values[len(values)-1])
		}
		if mean := sum / float64(len(values)); math.Abs(float64(h.Mean())-mean) > 1+mean*1e-9 {
			t.Fatalf("mean %v, want %v", h.Mean(), time.Duration(mean))
		}
		for _, p := range []float64{0, 1, 50, 90, 99, 99.9, 100, rapid.Float64Range(0, 100).Draw(t, "p")} {
			want := exactly(values, p)
			got := h.Percentile(p)
			// A rank within the rounding error of a float may be rounded either way.
			if other := exactly(values, math.Max(0, p-1e-6)); got < other || float64(got) > float64(want)*(1+loadgen.Precision) {
				t.Fatalf("p%v is %v, want %v", p, got, want)
			}
		}
		total := int64(0)
		for i, c := range h.Classes() {
			total += c.Count
			if c.From >= c.To || i > 0 && h.Classes()[i-1].To != c.From {
				t.Fatalf("classes are not contiguous: %v", h.Classes())
			}
		}
		if total != h.Count() {
			t.Fatalf("%d values in classes, want %d: %v", total, h.Count(), h.Classes())
		}
	})
}

func TestPercentileOfRoundNumbers(t *testing.T) {
	var h loadgen.Histogram
	for i := range 999 {
		h.Record(time.Duration(i+1) * time.Nanosecond)
	}
	h.Record(time.Hour)
	// 99.9 % of 1000 is not exact in binary: the result must be the 999th value, not the 1000th.
	for p, want := range map[float64]time.Duration{99.9: 999, 99: 990, 50: 500, 0.1: 1, 0: 1, 100: time.Hour} {
		if got := h.Percentile(p); float64(got) < float64(want) || float64(got) > float64(want)*(1+loadgen.Precision) {
			t.Errorf("p%v of 1 to 1000 is %d, want %d", p, got, want)
		}
	}
}

func TestEmptyHistogram(t *testing.T) {
	var h loadgen.Histogram
	h.Add(new(loadgen.Histogram))
	if h.Percentile(99) != 0 || h.Mean() != 0 || h.Max() != 0 || h.Min() != 0 || h.Classes() != nil {
		t.Error("an empty histogram has values")
	}
	h.Record(-time.Second)
	if h.Max() != 0 || h.Count() != 1 {
		t.Errorf("a negative value counts as %v", h.Max())
	}
}

func TestClasses(t *testing.T) {
	var h loadgen.Histogram
	for _, d := range []time.Duration{300 * time.Microsecond, 3 * time.Millisecond, 3 * time.Millisecond, 15 * time.Millisecond} {
		h.Record(d)
	}
	us, ms := time.Microsecond, time.Millisecond
	want := []loadgen.Class{
		{200 * us, 500 * us, 1},
		{500 * us, ms, 0},
		{ms, 2 * ms, 0},
		{2 * ms, 5 * ms, 2},
		{5 * ms, 10 * ms, 0},
		{10 * ms, 20 * ms, 1},
	}
	if got := h.Classes(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
