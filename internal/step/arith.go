package step

import (
	"math"
	"math/bits"
)

// reciprocal prepares d for divide: an integer division costs several times a multiplication.
func reciprocal(d uint64) uint64 {
	if d == 0 {
		return 0
	}
	return math.MaxUint64 / d
}

// divide returns x/d and x%d. The reciprocal's quotient is right or one too small for every x and d: with
// m = floor((2^64-1)/d), x*m/2^64 > x/d - 1.
func divide(x, d, inv uint64) (q, r uint64) {
	q, _ = bits.Mul64(x, inv)
	r = x - q*d
	if r >= d {
		return q + 1, r - d
	}
	return q, r
}

// mulDiv returns a*b/c and the remainder, exactly. The quotient must fit 64 bits.
func mulDiv(a, b, c uint64) (q, r uint64) {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return math.MaxUint64, 0
	}
	return bits.Div64(hi, lo, c)
}

// mulSat multiplies two non-negative numbers, stopping at the largest int64.
func mulSat(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// addSat adds two non-negative numbers, stopping at the largest int64.
func addSat(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// ceilDiv divides a non-negative number, rounding up.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 {
		q++
	}
	return q
}

// saturate32 adds delta to a counter of 32 bits, keeping within it.
func saturate32(n, delta int64) int64 {
	return clamp(n, delta, math.MaxUint32)
}

func clamp(n, delta, most int64) int64 {
	if delta >= 0 {
		return min(addSat(n, delta), most)
	}
	return max(0, n+delta)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
