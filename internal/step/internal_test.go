package step

import (
	"math"
	"math/bits"
	"testing"
)

func FuzzDivide(f *testing.F) {
	for _, d := range []uint64{1, 2, 3, 1000, 1_000_000, 86_400_000_000, Year, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, math.MaxUint64} {
		for _, x := range []uint64{0, 1, d - 1, d, d + 1, 2*d - 1, math.MaxUint64 - d, math.MaxUint64} {
			f.Add(x, d)
		}
	}
	f.Fuzz(func(t *testing.T, x, d uint64) {
		if d == 0 {
			return
		}
		if q, r := divide(x, d, reciprocal(d)); q != x/d || r != x%d {
			t.Errorf("%d / %d = %d remainder %d, want %d and %d", x, d, q, r, x/d, x%d)
		}
	})
}

func FuzzMulDiv(f *testing.F) {
	f.Add(uint64(1<<50), uint64(Year), uint64(3))
	f.Add(uint64(math.MaxUint64), uint64(math.MaxUint64), uint64(1))
	f.Add(uint64(1<<63), uint64(4), uint64(2)) // just too large
	f.Add(uint64(1<<63), uint64(4), uint64(3)) // just fits
	f.Fuzz(func(t *testing.T, a, b, c uint64) {
		if c == 0 {
			return
		}
		q, r := mulDiv(a, b, c)
		hi, lo := bits.Mul64(a, b)
		if hi >= c { // too large
			if q != math.MaxUint64 {
				t.Errorf("%d * %d / %d = %d, want the largest there is", a, b, c, q)
			}
			return
		}
		backHi, backLo := bits.Mul64(q, c)
		backLo, carry := bits.Add64(backLo, r, 0)
		if backHi+carry != hi || backLo != lo || r >= c {
			t.Errorf("%d * %d / %d = %d remainder %d", a, b, c, q, r)
		}
	})
}

func TestSaturating(t *testing.T) {
	const most = math.MaxInt64
	for _, c := range []struct{ got, want int64 }{
		{addSat(most, 1), most},
		{addSat(most, most), most},
		{addSat(1, 2), 3},
		{mulSat(most, most), most},
		{mulSat(1<<32, 1<<31), most},
		{mulSat(1<<31, 1<<31), 1 << 62},
		{saturate32(5, 1<<50), math.MaxUint32},
		{saturate32(math.MaxUint32, 1), math.MaxUint32},
		{saturate32(5, -6), 0},
		{saturate32(5, -5), 0},
		{saturate32(5, -1<<50), 0},
		{clamp(1, most, 10), 10},
		{ceilDiv(10, 5), 2},
		{ceilDiv(11, 5), 3},
		{ceilDiv(0, 5), 0},
	} {
		if c.got != c.want {
			t.Errorf("got %d, want %d", c.got, c.want)
		}
	}
}

// Commonly used windows have different fingerprints, so that a change from one to another is always noticed.
func TestCommonWindowsDiffer(t *testing.T) {
	const (
		ms     = int64(1000)
		second = 1000 * ms
		minute = 60 * second
		hour   = 60 * minute
		day    = 24 * hour
	)
	lengths := []int64{ms, 10 * ms, 100 * ms}
	for unit, counts := range map[int64][]int64{
		second: {1, 2, 5, 10, 15, 20, 30},
		minute: {1, 2, 3, 5, 10, 15, 20, 30},
		hour:   {1, 2, 3, 4, 6, 8, 12},
		day:    {1, 2, 3, 4, 5, 7, 10, 14, 28, 30, 31, 60, 90, 180, 365},
	} {
		for _, n := range counts {
			lengths = append(lengths, n*unit)
		}
	}
	seen := map[uint8]Params{}
	for _, align := range []Align{Epoch, FirstHit} {
		for _, length := range lengths {
			p := Compile(Params{Kind: Window, Count: 1, Length: length, Align: align})
			if other, ok := seen[p.shape]; ok {
				t.Errorf("windows of %d (align %d) and %d (align %d) share the fingerprint %d", other.Length, other.Align, length, align, p.shape)
			}
			if p.shape == 0 {
				t.Errorf("a window of %d has the fingerprint of no state", length)
			}
			seen[p.shape] = p
		}
	}
}

// Nearly all buckets with different denominators have different fingerprints.
func TestFractionsDiffer(t *testing.T) {
	seen := map[uint8]bool{}
	const n = 50
	for count := range int64(n) {
		p := Compile(Params{Kind: Bucket, Count: 2*count + 1, Length: 1 << 20, Burst: 1})
		seen[p.shape] = true
	}
	if len(seen) < n*4/5 {
		t.Errorf("%d denominators have %d fingerprints", n, len(seen))
	}
}

// Commonly used buckets have different fingerprints, too.
func TestCommonBucketsDiffer(t *testing.T) {
	const (
		second = int64(1_000_000)
		minute = 60 * second
		hour   = 60 * minute
		day    = 24 * hour
	)
	var fills []int64
	for unit, counts := range map[int64][]int64{
		second / 1000: {1, 10, 100, 200, 500},
		second:        {1, 2, 3, 5, 10, 15, 20, 30},
		minute:        {1, 2, 3, 5, 10, 15, 20, 30},
		hour:          {1, 2, 3, 4, 6, 8, 12},
		day:           {1, 2, 3, 5, 7, 10, 14, 28, 30, 31, 60, 90, 180, 365},
	} {
		for _, n := range counts {
			fills = append(fills, n*unit)
		}
	}
	seen := map[uint8]Params{}
	check := func(p Params) {
		p = Compile(p)
		if other, ok := seen[p.shape]; ok || p.shape == 0 || p.shape > 99 || p.shape == p.shapeBefore() {
			t.Errorf("a bucket of %d per %d has the fingerprint %d, as one of %d per %d", p.Count, p.Length, p.shape, other.Count, other.Length)
		}
		seen[p.shape] = p
	}
	for _, fill := range fills {
		check(Params{Kind: Bucket, Count: 1, Length: fill, Burst: 1})
	}
	check(Params{Kind: Bucket, Count: 60, Length: second, Burst: 60})
	check(Params{Kind: Bucket, Count: 60, Length: second, Burst: 120})
}

// Buckets with the same fill time have the same fingerprint, whatever their count: no conversion is needed.
func TestSameFillSameShape(t *testing.T) {
	a := Compile(Params{Kind: Bucket, Count: 10, Burst: 10, Length: 60e6})
	for _, count := range []int64{1, 100, 1000, 250_000} {
		if b := Compile(Params{Kind: Bucket, Count: count, Burst: count, Length: 60e6}); a.shape != b.shape {
			t.Errorf("10 and %d a minute: %d and %d", count, a.shape, b.shape)
		}
	}
}

// No bucket with whole microseconds has a shape of the previous version.
func TestShapeBefore(t *testing.T) {
	for count := range int64(5000) {
		p := Compile(Params{Kind: Bucket, Count: 1, Length: 1000 + count, Burst: 1 + count%7})
		if p.shape == wholeBefore || p.shape > 99 || p.shapeBefore() != wholeBefore {
			t.Fatalf("shape %d, before %d", p.shape, p.shapeBefore())
		}
	}
}

// Limits with the same window have the same fingerprint whatever their count. Otherwise a change of the count would
// move the window.
func TestCountIsNotInTheFingerprint(t *testing.T) {
	for _, kind := range []Kind{Window, Counter, Slices, Log, Permits} {
		a := Compile(Params{Kind: kind, Count: 10, Slices: 6, Length: 60e6})
		b := Compile(Params{Kind: kind, Count: 77, Slices: 6, Length: 60e6})
		if a.shape != b.shape {
			t.Errorf("kind %d: %d and %d", kind, a.shape, b.shape)
		}
	}
}
