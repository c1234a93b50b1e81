// Package step holds Sluice's algorithms as pure integer functions: a state, the time and a cost go in, a state and
// an answer come out. There is no clock, no I/O and no lock here; stores bring those. Redis runs the same algorithms
// in Lua, and a differential test keeps the two equal, so everything here must be sayable in a few Lua lines.
//
// # Time
//
// Times are microseconds since the Unix epoch and durations are microseconds. Time never runs backwards for a key: a
// caller with a stale clock finds the state as it is and is granted nothing that a caller on time would not be.
//
// # Exactness
//
// Nothing is rounded in the caller's favour. A bucket's state is a time with a fraction whose denominator is chosen
// so that N per window is exact for every N and window; windows count; the sliding counter quantises the weight of
// the window before to 1/65,536, upwards. A reference in rational arithmetic agrees with every decision (see the
// tests).
//
// # State
//
// A narrow state is a [State]: the microsecond at which it equals that of a key never seen, a value whose meaning
// belongs to the algorithm, and a shape. Because ExpiresAt means the same for all algorithms, a table can expire and
// evict keys knowing nothing of rules. The sliding log and the counter with sub-windows need more room and keep it in
// a slice of words that the store owns; see [Params.Words].
package step

import "math/bits"

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

	shape    uint8 // fingerprint of what gives a stored value its meaning besides Kind
	fast     uint8 // which plain case of Plain this is
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

	lengthInv uint64 // reciprocal of Length
	slice     int64  // length of a sub-window
	sliceInv  uint64
	grain     int64 // resolution of the grace of a soft limit

	capQ int64 // of Cap
	capR uint64
}

// State is what a store keeps for one key. The zero State is that of a key never seen.
type State struct {
	ExpiresAt int64  // from this microsecond on, the state equals the zero State
	Value     uint64 // meaning depends on Kind
	Shape     uint8  // Params.shape of the limit that wrote Value
}

// Request is one attempt to spend.
type Request struct {
	Cost     int64  // 0 peeks: nothing is spent
	Min      int64  // if positive, a grant of at least Min and at most Cost is accepted: what remains, or Min if that fits otherwise
	MaxDelay int64  // accept a place this much later; a Queue without it accepts any place it has
	Charge   bool   // charge a refused request too
	DryRun   bool   // decide, change nothing
	Settles  bool   // it will be settled: a bucket keeps a mark for it
	Known    *Known // what other shapes of the rule's states mean
}

// Settlement says what an earlier take really cost.
type Settlement struct {
	At      int64  // Answer.At of the take
	Delta   int64  // what it really cost less what was charged
	Charged int64  // what was charged; 0 if that is not known: then nothing but Delta says how much it was
	Of      int64  // Limit when it was charged; 0 if it is still that
	Settles bool   // the take had Settles
	Known   *Known // what other shapes of the rule's states mean
}

// Answer is the outcome of one Request.
type Answer struct {
	Allowed    bool
	Never      bool  // the cost can never fit, however long one waits
	Blocked    bool  // denied because the key is blocked; stores set it
	Granted    int64 // what was spent; negative: what was given back
	Remaining  int64 // the largest cost that a request without MaxDelay could spend now
	RetryAfter int64 // when denied: the same request would be allowed this much later if no other came, perhaps with a Delay
	ResetAfter int64 // the key is as if never seen this much later
	Delay      int64 // when allowed: how long the caller must wait first
	At         int64 // when the take counts from; names it to Adjust
}

// Limit is the largest cost that can ever be allowed at once: what callers are told as their limit. It includes what a
// soft limit may be exceeded by.
func (p *Params) Limit() int64 { return p.limit }

// Identity distinguishes states that cannot be read as each other's. Stores make it part of the stored key.
func (p *Params) Identity() uint64 { return p.identity }

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
	p.identity = uint64(p.Kind) | uint64(p.Slices)<<8
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

const (
	// bucketShapes is how many shapes buckets have: those of two digits but one.
	bucketShapes = 98
	// wholeBefore is the shape that the version before gave to all buckets whose times are whole microseconds. No bucket has
	// it any more, so that it is always known what it means.
	wholeBefore = 62
)

func mixed(a, b, c uint64) uint64 {
	h := a*0x9E3779B97F4A7C15 ^ bits.RotateLeft64(b*0xC2B2AE3D27D4EB4F, 21) ^ bits.RotateLeft64(c*0x165667B19E3779F9, 43)
	h ^= h >> 29
	h *= 0x26FA891711ED22C3
	return h >> 32
}

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

// Take decides one request and returns the state to keep, whatever the answer. The words are the wide part of the
// state, at least [Params.Words] long, and are changed in place. They are nil for narrow kinds, and for a bucket without
// marks whose take needs none; whether a bucket's are still needed then [Params.Wide] reports.
func (p *Params) Take(s State, words []uint64, now int64, r Request) (State, Answer) {
	if len(words) > 0 && p.Kind <= Interval {
		return p.takeMarked(s, words, now, r)
	}
	was := s
	if s.Shape != p.shape && s.ExpiresAt > now {
		if r.DryRun {
			words = append([]uint64(nil), words...)
		}
		s = p.convertState(s, words, now, r.Known)
	}
	next, a := s, Answer{}
	if r.Cost == 0 {
		a = p.peek(s, words, now, r)
	} else {
		next, a = p.take(s, words, now, r)
	}
	if !a.Allowed && r.Cost > 0 && (r.Min > 0 || r.Charge) {
		next, a = p.refuse(s, words, now, r, a)
	}
	if r.DryRun {
		return was, a
	}
	return next, a
}

// refuse does what a request asked for in case it does not fit as a whole: a part of it, or a charge all the same.
func (p *Params) refuse(s State, words []uint64, now int64, r Request, a Answer) (State, Answer) {
	rest := r
	if r.Min > 0 {
		rest.Cost, rest.Min = max(min(a.Remaining, r.Cost), r.Min), 0 // Min, unless only the wait is too long
		var next State
		if next, a = p.take(s, words, now, rest); a.Allowed {
			return next, a
		}
	}
	if r.Charge && !r.DryRun {
		s = p.charge(s, words, now, r.Cost)
		a.Granted, a.At = 0, now
		a.Remaining, a.ResetAfter = p.look(s, words, now)
		// The refusal's own charge may push back the moment at which a retry succeeds.
		if !a.Never {
			rest.DryRun = true
			_, again := p.take(s, words, now, rest)
			a.RetryAfter = again.RetryAfter
		}
	}
	return s, a
}

func (p *Params) take(s State, words []uint64, now int64, r Request) (State, Answer) {
	switch p.Kind {
	case Bucket:
		return p.takeBucket(s, now, r)
	case Interval:
		return p.takeInterval(s, now, r)
	case Window:
		return p.takeWindow(s, now, r)
	case Counter:
		return p.takeCounter(s, now, r)
	case Slices:
		return p.takeSlices(s, words, now, r)
	case Permits:
		return p.takePermits(s, words, now, r)
	default:
		return p.takeLog(s, words, now, r)
	}
}

// peek answers whether one unit would be allowed, and says what remains; it changes nothing.
func (p *Params) peek(s State, words []uint64, now int64, r Request) Answer {
	_, a := p.take(s, words, now, Request{Cost: 1, MaxDelay: r.MaxDelay, DryRun: true})
	a.Granted = 0
	a.Remaining, a.ResetAfter = p.look(s, words, now)
	return a
}

// look tells what remains and how long until the key is as if never seen.
func (p *Params) look(s State, words []uint64, now int64) (remaining, resetAfter int64) {
	switch p.Kind {
	case Bucket:
		remaining = p.bucketRemaining(s, now)
	case Interval:
		deficit, _ := p.interval(s, now)
		remaining = max(0, p.Burst-deficit)
	case Window:
		w := p.window(s, now)
		if w.count == 0 {
			return p.limit, 0
		}
		return w.room(p, now), w.end - now
	case Counter:
		c := p.counter(s, now)
		remaining = max(0, p.Count-p.counterUsed(c, now))
	case Slices:
		var room ring
		at, ring := p.slicesCopy(s, words, now, &room)
		remaining = max(0, p.Count-p.slicesUsed(at, ring, now))
	case Permits:
		l := p.permits(s, words, now)
		return max(0, p.Count-l.sum), l.ends(p, now)
	default:
		l := p.log(s, words, now)
		remaining = max(0, p.Count-l.sum)
	}
	return remaining, max(0, s.ExpiresAt-now)
}

// charge books the cost of a refused request. A bucket is emptied at the most, so that a flood of refused requests
// keeps a caller out for one refill and no longer; windows count on, up to the most they can hold.
func (p *Params) charge(s State, words []uint64, now, cost int64) State {
	switch p.Kind {
	case Bucket:
		return p.chargeBucket(s, now, cost)
	case Interval:
		return p.chargeInterval(s, now, cost)
	case Window:
		w := p.window(s, now)
		return p.putWindow(w.add(p, now, cost))
	case Counter:
		c := p.counter(s, now)
		c.cur = saturate32(c.cur, cost)
		return p.putCounter(c)
	case Slices:
		return p.chargeSlices(s, words, now, cost)
	case Permits: // who was refused is not in flight
		return s
	default:
		return p.chargeLog(s, words, now, cost)
	}
}

// Adjust settles an earlier take, named by the At of its answer: Delta is what it really cost less what was charged.
//
// A negative Delta gives back, and never more than would be there had the take cost so much less: a bucket goes by the
// take's mark, or without Settles by what the take itself shows has not worn off. A place in a queue is given back only if
// nothing stands behind it; windows, counters and logs give back where the take was counted, if it still is. A positive
// Delta was used by now at the latest, so now is when it is charged, and it may go into debt, for a bucket up to
// [Params.Cap].
//
// A slot is given back whole by a settlement, and in part by a negative delta without Settles. A positive one renews it:
// the answer's At is its name from then on. One that is gone, because it was not renewed in time, is taken anew by that,
// if there is room.
func (p *Params) Adjust(s State, words []uint64, now int64, x Settlement) (State, Answer) {
	at := max(now-maxAhead, min(x.At, now+maxAhead)) // a time that no take can have had must not wrap around
	if p.Kind <= Interval {
		next, given := p.settleMarked(s, words, now, at, x)
		a := Answer{Allowed: true, Granted: given, At: x.At}
		a.Remaining, a.ResetAfter = p.look(next, nil, now)
		return next, a
	}
	if s.Shape != p.shape && s.ExpiresAt > now {
		s = p.convertState(s, words, now, x.Known)
	}
	if p.Kind == Permits {
		next, a := p.adjustPermits(s, words, now, at, x)
		if x.Delta <= 0 || x.Settles {
			a.At = x.At
		}
		return next, a
	}
	var given int64
	switch {
	case x.Delta == 0:
	case p.Kind == Window:
		s, given = p.adjustWindow(s, now, at, x.Delta)
	case p.Kind == Counter:
		s, given = p.adjustCounter(s, now, at, x.Delta)
	case p.Kind == Slices:
		s, given = p.adjustSlices(s, words, now, at, x.Delta)
	default:
		s, given = p.adjustLog(s, words, now, at, x.Delta)
	}
	a := Answer{Allowed: true, Granted: given, At: x.At}
	a.Remaining, a.ResetAfter = p.look(s, words, now)
	return s, a
}
