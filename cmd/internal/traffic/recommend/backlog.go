package recommend

import (
	"math"
	"math/bits"
)

// backlog is the level of a queue drained at a rate, and its maximum. Levels are exact: multiples of 1/length.
type backlog struct {
	count, length int64 // rate: count per length microseconds, without a common divisor
	level, most   int64
	last          int64 // time of the level, in microseconds
}

func newBacklog(r Rate) backlog {
	g := gcd(r.Count, r.micros())
	return backlog{count: r.Count / g, length: r.micros() / g, last: math.MinInt64}
}

// add adds a request. Times must not go back.
func (b *backlog) add(micros, cost int64) {
	if b.last != math.MinInt64 {
		b.level = max(0, b.level-mulSat(micros-b.last, b.count))
	}
	b.last = micros
	if b.level += mulSat(cost, b.length); b.level < 0 {
		b.level = math.MaxInt64
	}
	b.most = max(b.most, b.level)
}

// empty forgets the requests so far.
func (b *backlog) empty() { b.level, b.most, b.last = 0, 0, math.MinInt64 }

// burst returns the smallest burst that denies nothing: the largest level, rounded up.
func (b *backlog) burst() int64 {
	n := b.most / b.length
	if b.most%b.length > 0 {
		n++
	}
	return n
}

// overflowed reports whether a level was too large to be exact.
func (b *backlog) overflowed() bool { return b.most == math.MaxInt64 }

// largest returns the largest level.
func (b *backlog) largest() float64 { return float64(b.most) / float64(b.length) }

// mulSat returns a·b of numbers that are not negative, at most MaxInt64.
func mulSat(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, 1)
}
