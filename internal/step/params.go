package step

import (
	"math"
	"math/bits"
	"strconv"
)

// Kind is what a state means. It is part of a bucket's identity: a rule whose limit changes kind starts anew, a rule
// whose numbers change does not.
type Kind uint8

const (
	Bucket   Kind = iota + 1 // token bucket refilled continuously, leaky bucket as meter or queue
	Interval                 // token bucket refilled at whole intervals
	Window                   // fixed window
	Counter                  // sliding window counter: the window before, weighted
	Slices                   // sliding window counter over sub-windows
	Log                      // sliding window log
	Permits                  // what is in flight: slots that are taken, renewed and given back
)

var kindNames = [...]string{"", "bucket", "interval_bucket", "window", "sliding_counter", "sub_windows_", "sliding_log", "concurrency"}

// Name is the kind in words, for people. The number of sub-windows is part of it: states of different numbers have
// nothing in common.
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
	// Horizon bounds how long a bucket may take to fill, in microseconds: a hundred years.
	Horizon = 100 * Year
	// maxAhead bounds how far ahead of now a bucket's state may lie: a full one, and callers who wait or settle late.
	maxAhead = Horizon + Horizon/4
	// Year is 365 days in microseconds.
	Year = 365 * 24 * 3600 * 1_000_000
	// MaxTime is the largest time a state can hold: the year 2255. Lua's numbers are exact up to here.
	MaxTime = 1<<53 - 1
	// MaxWindowCount is the largest limit of a fixed window or sliding counter.
	MaxWindowCount = 1<<32 - 1
	// MaxLogCount is the largest limit of a sliding log, which keeps an entry per request, and of slots.
	MaxLogCount = 10_000
	// MaxSlices is the largest number of sub-windows.
	MaxSlices = 60
)

// Align says where a window begins.
type Align uint8

const (
	Epoch    Align = iota // at a multiple of its length since the Unix epoch
	FirstHit              // at the first request after the window before has ended
	Calendar              // where Params.Bounds says
)

// Params are a limit's numbers. The first group is what a limit says, the second what [Compile] derives from it.
// Params are immutable once compiled.
type Params struct {
	Kind       Kind
	Queue      bool  // Bucket: a take that fits is given a place in the queue and told how long to wait
	Nearest    bool  // Counter, Slices: round the estimate to the nearest integer instead of down
	Align      Align // Interval, Window
	Count      int64 // N: how much a window holds, or flows in or out of a bucket in a window
	Length     int64 // of the window; for calendar windows the longest there is
	Burst      int64 // Bucket, Interval: the bucket's size
	HasInitial bool  // Bucket without Queue: a new bucket holds Initial, not Burst
	Initial    int64 // with HasInitial: 0 to Burst
	Slices     int64 // Slices: the number of sub-windows
	SoftExcess int64 // Window: how much a soft limit may be exceeded by
	SoftPeriod int64 // Window: for how long after it was first exceeded
	// Bounds gives the calendar window that now falls into. It must be a pure function.
	Bounds func(now int64) (start, end int64)
	// BoundsID tells calendars apart (unit and zone), so that a changed one is noticed.
	BoundsID uint64
	// Owner is the limit as users have it. The algorithms do not look at it.
	Owner any
	// Whole is the limit that this one is a part of, such as one process' share: states are read and written as that one's,
	// because the number of processes is no change of numbers. Where the parts' fractions are of different things, up to a
	// microsecond is lost or won when the part changes. Zero: it is no other's. Bucket, Interval.
	Whole Numbers

	shape    uint8  // fingerprint of what gives a stored value its meaning besides Kind
	fast     uint8  // which plain case of Plain this is
	family   uint64 // Kind and Slices: whose shapes have the same meaning
	identity uint64
	limit    int64
	partOf   *Params // Whole

	// A bucket's times have the denominator den; a unit of cost takes unitQ + unitR/den microseconds to drip, a full
	// bucket fillQ + fillR/den.
	den          uint64
	perDen       uint64 // Length / gcd(Count, Length): a unit of cost in 1/den microseconds
	perDenInv    uint64 // reciprocal of perDen
	unitQ, fillQ int64
	unitR, fillR uint64
	newQ         int64 // with HasInitial: a new bucket takes newQ + newR/den microseconds to fill
	newR         uint64
	keep         int64 // how long a state outlives the moment at which the bucket is full: keepFull with HasInitial, else 0

	lengthInv uint64 // reciprocal of Length
	slice     int64  // length of a sub-window
	sliceInv  uint64
	grain     int64 // resolution of the grace of a soft limit

	capQ int64 // of Cap
	capR uint64
}

// Limit is the largest cost that can ever be allowed at once: what callers are told as their limit. It includes what a
// soft limit may be exceeded by.
func (p *Params) Limit() int64 { return p.limit }

// Identity distinguishes states that cannot be read as each other's. Stores make it part of the stored key.
func (p *Params) Identity() uint64 { return p.identity }

// InitialIdentity is the bit of [Params.Identity] that buckets with HasInitial have.
const InitialIdentity = 1 << 15

// Name is the kind of the states in words: limits with the same name read each other's states.
func (p *Params) Name() string {
	if p.HasInitial {
		return InitialName
	}
	return p.Kind.Name(int(p.Slices))
}

// InitialName is the [Params.Name] of buckets with HasInitial.
const InitialName = "initial_bucket"

// Shape marks the states that these Params write.
func (p *Params) Shape() uint8 { return p.shape }

// Compile derives what the algorithms need. It trusts its input: the sluice package validates limits.
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

// Part is a smaller limit of the same kind, whose states mean the same as those of this one.
func (p *Params) Part(count, burst, over int64) *Params {
	part := *p
	part.Count, part.Burst, part.SoftExcess = count, burst, over
	if p.HasInitial { // rounded down: n parts of ⌈Burst/n⌉ hold at most n - 1 more than Initial
		initial, _ := mulDiv(uint64(p.Initial), uint64(burst), uint64(p.Burst))
		part.Initial = int64(initial)
	}
	part.Whole, part.partOf = p.Numbers(), nil
	part = Compile(part)
	return &part
}

// fingerprint hashes the window's length and alignment; for a bucket, what fills it and what its fractions are of. Two
// limits of one rule name that share it by accident (one in 255, of buckets one in 99, unless they are common ones, which
// all differ: the factors were searched for that) have a stored state read as if it were the other's: a window ends when it
// would have, and a bucket is full when it would have been.
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
	// bucketShapes is how many shapes buckets have: those of two digits but one.
	bucketShapes = 98
	// wholeBefore is the shape that the version before gave to all buckets whose times are whole microseconds. No bucket has
	// it any more, so that it is always known what it means.
	wholeBefore = 62
)

func (p *Params) windowShape(meaning uint64) uint8 {
	h := meaning*0x9E3779B97F4A7C15 ^ uint64(p.Align)*0xC2B2AE3D27D4EB4F ^ p.BoundsID*0x165667B19E3779F9
	h ^= h >> 29
	h *= 0x272796BDE8769949
	return uint8(h>>56)%255 + 1
}

// shapeBefore is the shape that the version before gave to a bucket's states: a fingerprint of what the fractions are of,
// or of the interval.
func (p *Params) shapeBefore() uint8 {
	if p.Kind == Bucket {
		return p.windowShape(p.whole().den)
	}
	return p.windowShape(uint64(p.whole().Length))
}

// Drips are a bucket's times as the Redis script needs them: how long a unit of cost and a full bucket take to drip, in
// microseconds and fractions of one.
type Drips struct {
	Den          uint64 // what the fractions are of
	UnitQ, FillQ int64
	UnitR, FillR uint64
	NewQ         int64 // with HasInitial: how long a new bucket takes to fill
	NewR         uint64
}

// Drips are the bucket's times.
func (p *Params) Drips() Drips {
	return Drips{Den: p.den, UnitQ: p.unitQ, UnitR: p.unitR, FillQ: p.fillQ, FillR: p.fillR, NewQ: p.newQ, NewR: p.newR}
}

// DripTime is how long a cost takes to drip, in microseconds and 1/[Drips.Den] microseconds.
func (p *Params) DripTime(cost int64) (q int64, r uint64) { return p.dripTime(cost) }

// SliceLength is how long a sub-window is.
func (p *Params) SliceLength() int64 { return p.slice }

// Grain is the resolution of a soft window's grace.
func (p *Params) Grain() int64 { return p.grain }

// Rounding is what is added to a sliding counter's estimate before it is cut, in 1/65,536.
func (p *Params) Rounding() int64 { return p.half() }

// WindowValue packs what a fixed window counted, and how many grains before its end its grace ends, as a state's value.
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
