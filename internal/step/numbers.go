package step

import (
	"math"
	"math/big"
	"math/bits"
	"sort"
)

// Numbers are the values that give a stored state its meaning; its shape is a fingerprint of them. A bucket's backlog
// is relative to its fill time, and a counter's windows have a length. They are zero for kinds whose count means the
// same under all numbers.
type Numbers struct {
	Kind                 Kind
	Slices               int64 // Slices
	Count, Length, Burst int64 // Bucket, Interval; Length alone: Counter, Slices
}

// Numbers returns the numbers of the limit, or of the limit that it is a part of.
func (p *Params) Numbers() Numbers {
	switch p.Kind {
	case Bucket, Interval:
		w := p.whole()
		return Numbers{Kind: p.Kind, Count: w.Count, Length: w.Length, Burst: w.Burst}
	case Counter, Slices:
		return Numbers{Kind: p.Kind, Slices: p.Slices, Length: p.Length}
	}
	return Numbers{}
}

// IsValid reports whether the numbers can be those of a limit. Stored numbers may be damaged.
func (n Numbers) IsValid() bool {
	const most = 1 << 62
	switch {
	case n.Length < 1 || n.Length > 2*Year:
		return false
	case n.Kind == Counter:
		return n == Numbers{Kind: Counter, Length: n.Length}
	case n.Kind == Slices:
		return n.Slices > 1 && n.Slices <= MaxSlices && n.Length%n.Slices == 0 && n.Count == 0 && n.Burst == 0
	case n.Kind != Bucket && n.Kind != Interval || n.Slices != 0 || n.Count < 1 || n.Burst < 1 || n.Count > most || n.Burst > most:
		return false
	}
	fill, _ := mulDiv(uint64(n.Burst), uint64(n.Length), uint64(n.Count))
	return fill <= Horizon
}

func (n Numbers) compile() *Params {
	p := Compile(Params{Kind: n.Kind, Slices: n.Slices, Count: n.Count, Length: n.Length, Burst: n.Burst})
	return &p
}

// whole returns the limit that this one is a part of, or p itself.
func (p *Params) whole() *Params {
	if p.partOf != nil {
		return p.partOf
	}
	return p
}

// means reports whether states of both limits have the same meaning.
func (p *Params) means(o *Params) bool {
	p, o = p.whole(), o.whole()
	switch {
	case p.family != o.family || p.shape != o.shape:
		return false
	case p.Kind == Bucket: // only the fill time counts: differing fractions of a microsecond in the parts are rounded
		hi, lo := bits.Mul64(p.fillR, o.den)
		otherHi, otherLo := bits.Mul64(o.fillR, p.den)
		return p.fillQ == o.fillQ && hi == otherHi && lo == otherLo
	}
	return p.Numbers() == o.Numbers()
}

// Known is the set of numbers that one rule has and has had in one store, which gives the shapes of its states their
// meaning. It contains at most two numbers per shape: with two the meaning is ambiguous, so that a third would not
// help.
//
// A Known is immutable, except for one returned by [Latest]. A nil Known is empty.
type Known struct {
	all    []*Params     // sorted by kind and shape
	latest func() *Known // of Latest: the current set
}

// Latest returns a Known that always reads the set that the function returns. A store in this process needs it: between
// the start of a take and the lookup of the state, another take may have written the state under new numbers.
func Latest(of func() *Known) *Known { return &Known{latest: of} }

func (k *Known) list() []*Params {
	switch {
	case k == nil:
		return nil
	case k.latest != nil:
		return k.latest().list()
	}
	return k.all
}

// place returns the index and the number of the shape's numbers.
func place(all []*Params, family uint64, shape uint8) (at, n int) {
	at = sort.Search(len(all), func(i int) bool {
		p := all[i]
		return p.family > family || p.family == family && p.shape >= shape
	})
	for at+n < len(all) && all[at+n].family == family && all[at+n].shape == shape {
		n++
	}
	return at, n
}

// Has reports whether the limit's numbers add nothing to the set.
func (k *Known) Has(p *Params) bool {
	if p.Kind > Slices || p.Kind == Window {
		return true
	}
	all := k.list()
	at, n := place(all, p.family, p.shape)
	return n > 1 || n == 1 && all[at].means(p)
}

// With returns a Known that also contains the valid ones of these numbers. It returns k itself if none is new.
func (k *Known) With(numbers ...Numbers) *Known {
	was := k.list()
	all := append([]*Params(nil), was...)
	for _, n := range numbers {
		if !n.IsValid() {
			continue
		}
		p := n.compile()
		at, found := place(all, p.family, p.shape)
		if found > 1 || found == 1 && all[at].means(p) {
			continue
		}
		all = append(all[:at], append([]*Params{p}, all[at:]...)...)
	}
	if len(all) == len(was) {
		return k
	}
	return &Known{all: all}
}

// All returns all numbers, for a store to save.
func (k *Known) All() []Numbers {
	all := k.list()
	numbers := make([]Numbers, len(all))
	for i, p := range all {
		numbers[i] = p.Numbers()
	}
	return numbers
}

// Finds reports whether the meaning of a shape of these Params' kind is known, or the kind needs none.
func (k *Known) Finds(p *Params, shape uint8) bool {
	switch p.Kind {
	case Bucket, Interval, Counter, Slices:
		return shape == p.shape || k.find(p, shape) != nil
	}
	return true
}

// Before returns a state that the previous version may have written with shape 0, which Adopt recognizes. That
// version's shapes were fingerprints of other values and overlap with new ones: a shape in the set has the meaning of
// the set.
func (k *Known) Before(p *Params, s State) State {
	if p.Kind > Interval || p.HasInitial || s.Shape != p.shapeBefore() || s.Shape == p.shape {
		return s
	}
	if _, n := place(k.list(), p.family, s.Shape); n == 0 {
		s.Shape = 0
	}
	return s
}

// find returns the limit whose states have the shape, or nil if none or more than one is known.
func (k *Known) find(p *Params, shape uint8) *Params {
	all := k.list()
	if at, n := place(all, p.family, shape); n == 1 {
		return all[at]
	}
	return nil
}

// Adopt converts a state that was written under other numbers to one of this limit, words in place. A state of this
// limit, or an expired one, is returned unchanged. Stores that convert before a lookup need it.
//
// A bucket of shape 0 was written by the previous version. It is full when it would have been.
//
// Buckets keep the used fraction, with a negative balance down to [Params.Cap]. A state of unknown numbers has no
// remaining quota. Windows and logs keep their count, and counters their estimate, rounded up. If the length differs,
// all of it counts as used now.
func (p *Params) Adopt(s State, words []uint64, now int64, known *Known) State {
	if s.Shape == p.shape || s.ExpiresAt <= now {
		return s
	}
	if p.Kind <= Interval {
		var m marks
		s = p.openMarks(&m, s, words, now, known)
		m.save(s, words)
		return s
	}
	return p.convertState(s, words, now, known)
}

// convertState is Adopt for a state that was written under other numbers. A denied take and a peek return the converted
// state, too. Otherwise a count from a long window would be moved into every new short window, and RetryAfter would be
// wrong until the long window had ended.
func (p *Params) convertState(s State, words []uint64, now int64, known *Known) State {
	switch p.Kind {
	case Bucket, Interval:
		return p.convertBucket(s, nil, now, known)
	case Window:
		return p.putWindow(p.windowAt(now).add(p, now, int64(s.Value&countMask)))
	case Counter:
		return p.convertCounter(s, now, known)
	case Slices:
		return p.convertSlices(s, words, now, known)
	case Log:
		l := p.log(s, words, now)
		return p.putLog(&l, now)
	default:
		return p.convertPermits(words, now)
	}
}

// convertBucket converts a bucket and its marks, if it has any.
func (p *Params) convertBucket(s State, m *marks, now int64, known *Known) State {
	to, from := p.whole(), known.find(p, s.Shape)
	if p.HasInitial {
		if s.ExpiresAt-p.keep <= now { // full under any numbers, and since the same time
			if m != nil {
				m.n = 0
			}
			return State{ExpiresAt: s.ExpiresAt, Shape: p.shape}
		}
		s.ExpiresAt -= p.keep
	}
	if s.Shape == 0 {
		// Written by the previous version, most likely under these numbers, and read as that version did: full when it
		// would have been.
		s.Shape = p.shape
		return s
	}
	if from == nil && m != nil {
		m.n = 0
	}
	if p.Kind == Interval {
		used := to.Burst
		if from != nil {
			deficit, _ := from.interval(s, now)
			used = scaled(deficit, 0, from, to, true)
		}
		_, base := p.interval(State{}, now)
		s = p.putInterval(min(used, p.capQ), base)
	} else {
		used := roundUp(to.fillQ, to.fillR)
		if from != nil {
			frac := s.Value
			if frac >= from.den { // of another limit with an equal fingerprint
				frac = 0
			}
			used = scaled(s.ExpiresAt-now, frac, from, to, true)
		}
		s = p.putBucket(moment{at: now + min(used, roundUp(p.capQ, p.capR))}, now)
	}
	if m != nil && m.n > 0 {
		backlog := p.backlog(s, now)
		for i := range m.n {
			k := &m.all[i]
			k.low = min(scaled(k.low, 0, from, to, false), backlog)
			k.out = min(scaled(k.out, 0, from, to, true), maxMarkAmount)
		}
		m.tidy()
	}
	return s
}

// scaled converts an amount of one bucket to the same fraction of another, rounded up or down: n units for interval
// buckets, n − frac/den microseconds for others.
func scaled(n int64, frac uint64, from, to *Params, up bool) int64 {
	if from.Kind == Interval {
		return scale(n, to.Burst, from.Burst, up)
	}
	if frac == 0 && from.fillR == 0 && to.fillR == 0 {
		return scale(n, to.fillQ, from.fillQ, up)
	}
	// (n - frac/den) * fill' / fill, whose products may exceed 128 bits.
	num := new(big.Int).Mul(big.NewInt(n), unsigned(from.den))
	num.Sub(num, unsigned(frac)).Mul(num, to.fill())
	den := new(big.Int).Mul(from.fill(), unsigned(to.den))
	if up {
		num.Add(num, den).Sub(num, big.NewInt(1))
	}
	if num.Quo(num, den); !num.IsInt64() {
		return math.MaxInt64
	}
	return num.Int64()
}

func unsigned(n uint64) *big.Int { return new(big.Int).SetUint64(n) }

// fill returns the fill time of the bucket in 1/den microseconds.
func (p *Params) fill() *big.Int {
	f := new(big.Int).Mul(big.NewInt(p.fillQ), unsigned(p.den))
	return f.Add(f, unsigned(p.fillR))
}

// scale returns n * to / from, saturating at the maximum int64.
func scale(n, to, from int64, up bool) int64 {
	q, r := mulDiv(uint64(n), uint64(to), uint64(from))
	if up && r > 0 && q < math.MaxUint64 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

// roundUp returns q + r/den, rounded up.
func roundUp(q int64, r uint64) int64 {
	if r > 0 {
		q++
	}
	return q
}
