package step

import (
	"math"
	"math/bits"
	"strconv"
)

// Kind is the meaning of a state. It is part of a bucket's identity: a rule whose limit changes kind starts from zero,
// a rule whose numbers change does not.
type Kind uint8

const (
	Bucket   Kind = iota + 1 // token bucket refilled continuously, leaky bucket as meter or queue
	Interval                 // token bucket refilled at whole intervals
	Window                   // fixed window
	Counter                  // sliding window counter: the previous window, weighted
	Slices                   // sliding window counter over sub-windows
	Log                      // sliding window log
	Permits                  // requests in flight: permits that are acquired, renewed and released
)

var kindNames = [...]string{"", "bucket", "interval_bucket", "window", "sliding_counter", "sub_windows_", "sliding_log", "concurrency"}

// Name returns the kind's name in messages. The number of sub-windows is part of it, because states with different
// numbers have nothing in common.
func (k Kind) Name(slices int) string {
	switch {
	case int(k) >= len(kindNames):
		return ""
	case k == Slices:
		return kindNames[k] + strconv.Itoa(slices)
	}
	return kindNames[k]
}

const (
	// Horizon is the maximum time that a bucket may take to fill, in microseconds: 100 years.
	Horizon = 100 * Year
	// maxAhead is the maximum time that a bucket's state may be ahead of now: a full bucket, and callers that wait or
	// settle late.
	maxAhead = Horizon + Horizon/4
	// Year is 365 days in microseconds.
	Year = 365 * 24 * 3600 * 1_000_000
	// MaxTime is the maximum time in a state: the year 2255. Lua's numbers are exact up to here.
	MaxTime = 1<<53 - 1
	// MaxWindowCount is the maximum limit of a fixed window or sliding counter.
	MaxWindowCount = 1<<32 - 1
	// MaxLogCount is the maximum limit of a sliding log, which stores an entry per request, and of permits.
	MaxLogCount = 10_000
	// MaxSlices is the maximum number of sub-windows.
	MaxSlices = 60
)

// Align selects where windows begin.
type Align uint8

const (
	Epoch    Align = iota // at a multiple of the length since the Unix epoch
	FirstHit              // at the first request after the previous window has ended
	Calendar              // as given by Params.Bounds
)

// Params are a limit's numbers. The first group are the settings of the limit, the second is derived by [Compile].
// Params are immutable once compiled.
type Params struct {
	Kind       Kind
	Queue      bool  // Bucket: a take that is allowed gets a place in the queue and a Delay
	Nearest    bool  // Counter, Slices: round the estimate to the nearest integer instead of down
	Align      Align // Interval, Window
	Count      int64 // maximum per window; for a bucket, the amount refilled or drained per window
	Length     int64 // of the window; for calendar windows the maximum length
	Burst      int64 // Bucket, Interval: size of the bucket
	HasInitial bool  // Bucket without Queue: a new bucket holds Initial, not Burst
	Initial    int64 // with HasInitial: 0 to Burst
	Slices     int64 // Slices: number of sub-windows
	SoftExcess int64 // Window: excess of a soft limit
	SoftPeriod int64 // Window: how long after the limit was first exceeded the excess is allowed
	// Bounds returns the calendar window that contains now. It must be a pure function.
	Bounds func(now int64) (start, end int64)
	// BoundsID distinguishes calendars (unit and zone), so that a change is noticed.
	BoundsID uint64
	// Owner is the *sluice.Limit. The algorithms do not use it.
	Owner any
	// Whole is the limit that this one is a part of, such as one instance's share: states are read and written as those
	// of Whole, because a change of the number of instances is no change of numbers. If the parts have different
	// denominators, up to 1 µs is lost or gained when the part changes. The zero Whole means that it is no part.
	// Bucket, Interval.
	Whole Numbers

	shape    uint8  // fingerprint of the numbers that, with Kind, give a stored value its meaning
	fast     uint8  // the case of Fast, 0 if none
	family   uint64 // Kind and Slices, within which equal shapes have the same meaning
	identity uint64
	limit    int64
	partOf   *Params // Whole, compiled

	// A bucket's times have the denominator den. A unit of cost drains in unitQ + unitR/den microseconds, a full bucket
	// in fillQ + fillR/den.
	den          uint64
	perDen       uint64 // Length / gcd(Count, Length): a unit of cost in 1/den microseconds
	perDenInv    uint64 // reciprocal of perDen
	unitQ, fillQ int64
	unitR, fillR uint64
	newQ         int64 // with HasInitial: a new bucket takes newQ + newR/den microseconds to fill
	newR         uint64
	keep         int64 // how long a state is kept after the bucket is full: keepFull with HasInitial, else 0

	lengthInv uint64 // reciprocal of Length
	slice     int64  // length of a sub-window
	sliceInv  uint64
	grain     int64 // resolution of the grace period of a soft limit

	capQ int64 // see Cap
	capR uint64
}

// Limit returns the maximum cost that can be allowed at once, the excess of a soft limit included. It is reported to
// callers as their limit.
func (p *Params) Limit() int64 { return p.limit }

// Identity distinguishes states that cannot be converted to each other. Stores make it part of the stored key.
func (p *Params) Identity() uint64 { return p.identity }

// InitialIdentity is the bit of [Params.Identity] that is set for buckets with HasInitial.
const InitialIdentity = 1 << 15

// Name returns the name of the kind of state. Limits with the same name can convert each other's states.
func (p *Params) Name() string {
	if p.HasInitial {
		return InitialName
	}
	return p.Kind.Name(int(p.Slices))
}

// InitialName is the [Params.Name] of buckets with HasInitial.
const InitialName = "initial_bucket"

// Shape returns the fingerprint that these Params write to states.
func (p *Params) Shape() uint8 { return p.shape }

// Compile derives the values that the algorithms need. It does not validate p, which package sluice does.
func Compile(p Params) Params {
	switch p.Kind {
	case Bucket:
		p.compileBucket()
	case Slices:
		p.slice = p.Length / p.Slices
		p.sliceInv = reciprocal(uint64(p.slice))
	}
	if p.Kind == Bucket || p.Kind == Interval {
		p.compileCap()
	}
	p.lengthInv = reciprocal(uint64(p.Length))
	p.grain = p.Length>>31 + 1
	p.shape = p.fingerprint()
	if p.Whole.Kind == p.Kind {
		p.partOf = p.Whole.compile()
		p.shape = p.partOf.shape
	}
	p.fast = p.compileFast()
	p.family = uint64(p.Kind) | uint64(p.Slices)<<8
	p.identity = p.family
	if p.HasInitial {
		p.identity |= InitialIdentity
	}
	p.limit = p.Count + p.SoftExcess
	if p.Kind == Bucket || p.Kind == Interval {
		p.limit = p.Burst
	}
	return p
}

// Part returns a smaller limit of the same kind, whose states have the same meaning as those of p.
func (p *Params) Part(count, burst, over int64) *Params {
	part := *p
	part.Count, part.Burst, part.SoftExcess = count, burst, over
	if p.HasInitial { // rounded down, so that n parts of ⌈Burst/n⌉ hold at most n - 1 more than Initial
		initial, _ := mulDiv(uint64(p.Initial), uint64(burst), uint64(p.Burst))
		part.Initial = int64(initial)
	}
	part.Whole, part.partOf = p.Numbers(), nil
	part = Compile(part)
	return &part
}

// fingerprint hashes the window's length and alignment; for a bucket, its fill time and denominator. The factors were
// chosen so that common limits all differ. Other limits of the same rule name have equal fingerprints with a
// probability of 1/255, for buckets 1/98. Then a stored state is read as that of the new limit: a window ends, and a
// bucket is full, when it would have been before.
func (p *Params) fingerprint() uint8 {
	switch p.Kind {
	case Bucket:
		shape := uint8(mixed(uint64(p.fillQ), p.fillR, p.den)%bucketShapes + 1)
		if shape >= wholeBefore {
			shape++
		}
		return shape
	case Interval:
		return uint8(mixed(uint64(p.Length), uint64(p.Count), uint64(p.Burst))%255 + 1)
	}
	return p.windowShape(uint64(p.Length))
}

func mixed(a, b, c uint64) uint64 {
	h := a*0x9E3779B97F4A7C15 ^ bits.RotateLeft64(b*0xC2B2AE3D27D4EB4F, 21) ^ bits.RotateLeft64(c*0x165667B19E3779F9, 43)
	h ^= h >> 29
	h *= 0x26FA891711ED22C3
	return h >> 32
}

const (
	// bucketShapes is the number of shapes for buckets: 1 to 99 except wholeBefore.
	bucketShapes = 98
	// wholeBefore is the shape that the previous version wrote for all buckets with whole microseconds. No bucket has
	// it any more, so that its meaning is unambiguous.
	wholeBefore = 62
)

func (p *Params) windowShape(meaning uint64) uint8 {
	h := meaning*0x9E3779B97F4A7C15 ^ uint64(p.Align)*0xC2B2AE3D27D4EB4F ^ p.BoundsID*0x165667B19E3779F9
	h ^= h >> 29
	h *= 0x272796BDE8769949
	return uint8(h>>56)%255 + 1
}

// shapeBefore returns the shape that the previous version wrote for a bucket: a fingerprint of the denominator or the
// interval.
func (p *Params) shapeBefore() uint8 {
	if p.Kind == Bucket {
		return p.windowShape(p.whole().den)
	}
	return p.windowShape(uint64(p.whole().Length))
}

// Drips are a bucket's times for the Redis script: the time in which a unit of cost and a full bucket drain, in
// microseconds and fractions of one.
type Drips struct {
	Den          uint64 // denominator of the fractions
	UnitQ, FillQ int64
	UnitR, FillR uint64
	NewQ         int64 // with HasInitial: time until a new bucket is full
	NewR         uint64
}

// Drips returns the bucket's times.
func (p *Params) Drips() Drips {
	return Drips{Den: p.den, UnitQ: p.unitQ, UnitR: p.unitR, FillQ: p.fillQ, FillR: p.fillR, NewQ: p.newQ, NewR: p.newR}
}

// DripTime returns the time in which cost drains, in microseconds and 1/[Drips.Den] microseconds.
func (p *Params) DripTime(cost int64) (q int64, r uint64) { return p.dripTime(cost) }

// SliceLength returns the length of a sub-window.
func (p *Params) SliceLength() int64 { return p.slice }

// Grain returns the resolution of a soft window's grace period.
func (p *Params) Grain() int64 { return p.grain }

// Rounding returns the amount that is added to a sliding counter's estimate before it is truncated, in 1/65,536.
func (p *Params) Rounding() int64 { return p.half() }

// WindowValue packs the count of a fixed window, and the number of grains from the end of its grace period to its end,
// into a state's value.
func WindowValue(count, grace int64) uint64 { return uint64(count) | uint64(grace)<<countBits }

// WindowOf unpacks the value of a fixed window's state.
func WindowOf(value uint64) (count, grace int64) {
	return int64(value & countMask), int64(value >> countBits)
}

// reciprocal prepares d for divide: an integer division costs several times a multiplication.
func reciprocal(d uint64) uint64 {
	if d == 0 {
		return 0
	}
	return math.MaxUint64 / d
}

// divide returns x/d and x%d. The quotient from the reciprocal is exact or 1 too small for every x and d: with m =
// floor((2^64-1)/d), x*m/2^64 > x/d - 1.
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

// mulSat multiplies two non-negative numbers, saturating at the maximum int64.
func mulSat(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// addSat adds two non-negative numbers, saturating at the maximum int64.
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

// saturate32 adds delta to a 32-bit counter, saturating at its bounds.
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
