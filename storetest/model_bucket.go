package storetest

import (
	"math/big"
	"time"

	"github.com/sluiceproject/sluice"
)

// bucketMeter is a bucket that is refilled, or leaks, continuously. It holds Burst; what was spent comes back at
// Count per Window. It keeps the moment at which the bucket is full again: the number of tokens follows from it. When the
// numbers change, the part of the bucket that is missing does not.
//
// With an Initial, the bucket of a new key holds that and is filled from the first request on. A key is new that was never
// seen, or whose bucket has been full for keptFull.
type bucketMeter struct {
	full  *big.Rat // nil: full, or new
	fill  *big.Rat // how long an empty one took to fill, and what it held, under which it was written
	burst int64
	kept  bool // for keptFull once it is full
}

// keptFull is how long a bucket with an Initial is remembered once it is full.
const keptFull = int64(24 * time.Hour / time.Microsecond)

// isNew reports whether the bucket is that of a new key.
func (m *bucketMeter) isNew(l *sluice.Limit, t int64) bool {
	return l.Initial != 0 && (m.full == nil || m.hasExpired() <= t)
}

// fullAt is when the bucket is full, or nil if it is.
func (m *bucketMeter) fullAt(l *sluice.Limit, t int64) *big.Rat {
	if m.isNew(l, t) {
		missing := new(big.Rat).Quo(whole(l.Burst-max(0, l.Initial)), rate(l))
		return missing.Add(missing, whole(t))
	}
	if m.full == nil || m.full.Cmp(whole(t)) <= 0 {
		return nil
	}
	return m.full
}

// begin starts the bucket of a new key.
func (m *bucketMeter) begin(l *sluice.Limit, now int64) {
	if m.isNew(l, now) {
		m.later(l, now, new(big.Rat))
	}
}

// fillOf is how long it takes to fill an empty bucket.
func fillOf(l *sluice.Limit) *big.Rat { return new(big.Rat).Quo(whole(l.Burst), rate(l)) }

// rate is Count per Window, in tokens per microsecond.
func rate(l *sluice.Limit) *big.Rat { return big.NewRat(l.Count, l.Window.Microseconds()) }

func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// floor rounds down.
func floor(r *big.Rat) int64 {
	return new(big.Int).Div(r.Num(), r.Denom()).Int64() // Euclidean, and the denominator is positive
}

func ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }

// tokens is what is in the bucket: less than nothing if it is in debt.
func (m *bucketMeter) tokens(l *sluice.Limit, t int64) *big.Rat {
	full := m.fullAt(l, t)
	if full == nil {
		return whole(l.Burst)
	}
	missing := new(big.Rat).Sub(full, whole(t))
	missing.Mul(missing, rate(l))
	return missing.Sub(whole(l.Burst), missing)
}

// adopted keeps the part that is missing, debt included up to the most there may be. A time is kept in whole microseconds
// when it changes.
func (m *bucketMeter) adopted(l *sluice.Limit, now int64) meter {
	if m.full == nil || m.full.Cmp(whole(now)) <= 0 || m.burst == l.Burst && m.fill.Cmp(fillOf(l)) == 0 {
		return m
	}
	changed := &bucketMeter{full: m.full, fill: fillOf(l), burst: l.Burst, kept: m.kept}
	if ratio := new(big.Rat).Quo(changed.fill, m.fill); ratio.Cmp(whole(1)) != 0 {
		left := new(big.Rat).Sub(m.full, whole(now))
		left = minOf(left.Mul(left, ratio), new(big.Rat).Quo(maxNegative(l), rate(l)))
		changed.full = whole(now + ceil(left))
	}
	return changed
}

func (m *bucketMeter) held() int64 { return m.burst }

func (m *bucketMeter) fits(l *sluice.Limit, t, cost int64) bool {
	return m.tokens(l, t).Cmp(whole(cost)) >= 0
}

// reaches is when there are so many tokens: that many before it is full.
func (m *bucketMeter) reaches(l *sluice.Limit, now, tokens int64) int64 {
	before := new(big.Rat).Quo(whole(l.Burst-tokens), rate(l))
	return ceil(before.Sub(m.fullAt(l, now), before))
}

func (m *bucketMeter) remaining(l *sluice.Limit, t int64) int64 { return max(0, floor(m.tokens(l, t))) }

func (m *bucketMeter) expiresAt(l *sluice.Limit, t int64) int64 {
	if full := m.fullAt(l, t); full != nil {
		return ceil(full)
	}
	return t
}

func (m *bucketMeter) hasExpired() int64 {
	switch {
	case m.full == nil:
		return 0
	case m.kept:
		return ceil(m.full) + keptFull
	}
	return ceil(m.full)
}

// later takes cost out of the bucket as if at a moment.
func (m *bucketMeter) later(l *sluice.Limit, at int64, cost *big.Rat) {
	full := m.fullAt(l, at)
	if full == nil {
		full = whole(at)
	}
	m.full = new(big.Rat).Add(full, new(big.Rat).Quo(cost, rate(l)))
	m.fill, m.burst, m.kept = fillOf(l), l.Burst, l.Initial != 0
}

func (m *bucketMeter) spend(l *sluice.Limit, now, cost, at int64) int64 {
	m.later(l, now, whole(cost))
	return at
}

// charge takes what is left and no more.
func (m *bucketMeter) charge(l *sluice.Limit, now, cost int64) {
	left := m.tokens(l, now)
	if left.Sign() <= 0 {
		return
	}
	if left.Cmp(whole(cost)) > 0 {
		left = whole(cost)
	}
	m.later(l, now, left)
}

// maxNegative is the most that a settlement may leave to come back: ten bursts, and what comes back in an hour.
func maxNegative(l *sluice.Limit) *big.Rat {
	hour := new(big.Rat).Mul(rate(l), whole(time.Hour.Microseconds()))
	return hour.Add(hour, whole(10*l.Burst))
}

func (m *bucketMeter) adjust(l *sluice.Limit, now, at, charged, delta int64) int64 {
	missing := new(big.Rat).Sub(whole(l.Burst), m.tokens(l, now))
	if delta > 0 {
		more := new(big.Rat).Sub(maxNegative(l), missing)
		if more.Sign() <= 0 {
			return 0
		}
		if more.Cmp(whole(delta)) > 0 {
			more = whole(delta)
		}
		m.later(l, now, more)
		return floor(more)
	}
	if missing.Sign() <= 0 || m.isNew(l, now) {
		return 0
	}
	back := m.returnable(l, now, at, charged, -delta)
	if back.Cmp(missing) > 0 {
		back = missing
	}
	if back.Sign() <= 0 {
		return 0
	}
	m.full = new(big.Rat).Sub(m.full, new(big.Rat).Quo(back, rate(l)))
	m.settle(now)
	return -freed(missing, back)
}

// freed is how many units fewer are missing after a refund, rounded up before and after as callers see it in Remaining.
func freed(missing, back *big.Rat) int64 {
	return ceil(missing) - ceil(new(big.Rat).Sub(missing, back))
}

// returnable is how much of a take can be given back: what has not flowed back since, or from a queue all of it.
func (m *bucketMeter) returnable(l *sluice.Limit, now, at, charged, cost int64) *big.Rat {
	if l.Algorithm == sluice.LeakyQueue {
		// Those who stand behind a place have been told when to leave: only the last place can be given back.
		without := new(big.Rat).Sub(m.full, new(big.Rat).Quo(whole(charged), rate(l)))
		if without.Cmp(whole(at)) > 0 {
			return new(big.Rat)
		}
		return whole(cost)
	}
	// Those who wait keep their places, and until the last of them what came back would overflow.
	last := new(big.Rat).Sub(m.full, new(big.Rat).Quo(whole(l.Burst), rate(l)))
	if last.Cmp(whole(max(at, now))) > 0 || at > now && cost < charged {
		return new(big.Rat)
	}
	left := new(big.Rat).Mul(rate(l), whole(max(0, now-at)))
	if left.Sub(whole(charged), left); left.Cmp(whole(cost)) < 0 {
		return left
	}
	return whole(cost)
}

// settle forgets a bucket that is full, or keeps that it is full since now.
func (m *bucketMeter) settle(now int64) {
	if m.full.Cmp(whole(now)) <= 0 {
		if m.full = nil; m.kept {
			m.full = whole(now)
		}
	}
}

func (m *bucketMeter) leaves(gone func(int64) bool) bool { return gone(m.hasExpired()) }

// intervalMeter is a bucket that is refilled by Count at the end of each Window. When it is full its intervals begin
// anew: at the next take, or at a multiple of the window, as the limit is aligned.
type intervalMeter struct {
	missing int64 // at and after boundary, until the next
	boundary,
	count, length, burst int64 // under which it was written
}

func (m *intervalMeter) held() int64 { return m.burst }

// fullAt is the boundary at which nothing is missing any more, and how much more that refill brings than is missing.
func (m *intervalMeter) fullAt() (at, spare int64) {
	if m.missing <= 0 {
		return 0, 0
	}
	refills := ceilDiv(m.missing, m.count)
	return m.boundary + refills*m.length, refills*m.count - m.missing
}

// at is the meter as it is at t.
func (m *intervalMeter) at(l *sluice.Limit, t int64) intervalMeter {
	length := l.Window.Microseconds()
	full, spare := m.fullAt()
	if full <= t {
		boundary := t
		if l.Align == sluice.AlignEpoch {
			boundary = floorDiv(t, length) * length
		}
		return intervalMeter{0, boundary, l.Count, length, l.Burst}
	}
	refills := ceilDiv(full-t, m.length)
	return intervalMeter{refills*m.count - spare, full - refills*m.length, m.count, m.length, m.burst}
}

// adopted keeps the part that is missing, rounded up, in the interval that now falls into under the new limit.
func (m *intervalMeter) adopted(l *sluice.Limit, now int64) meter {
	length := l.Window.Microseconds()
	if m.hasExpired() <= now || m.count == l.Count && m.length == length && m.burst == l.Burst {
		return m
	}
	changed := (&intervalMeter{}).at(l, now)
	part := new(big.Rat).Mul(whole(m.at(l, now).missing), big.NewRat(l.Burst, m.burst))
	changed.missing = min(ceil(part), floor(maxNegative(l)))
	return &changed
}

func (m *intervalMeter) fits(l *sluice.Limit, t, cost int64) bool {
	return m.at(l, t).missing+cost <= l.Burst
}

func (m *intervalMeter) remaining(l *sluice.Limit, t int64) int64 {
	return max(0, l.Burst-m.at(l, t).missing)
}

func (m *intervalMeter) expiresAt(_ *sluice.Limit, t int64) int64 { return max(t, m.hasExpired()) }

func (m *intervalMeter) hasExpired() int64 {
	full, _ := m.fullAt()
	return full
}

func (m *intervalMeter) spend(l *sluice.Limit, now, cost, at int64) int64 {
	*m = m.at(l, now)
	m.missing += cost
	return at
}

// charge takes what is left and no more.
func (m *intervalMeter) charge(l *sluice.Limit, now, cost int64) {
	if next := m.at(l, now); next.missing < l.Burst {
		next.missing = min(next.missing+cost, l.Burst)
		*m = next
	}
}

func (m *intervalMeter) adjust(l *sluice.Limit, now, at, charged, delta int64) int64 {
	next := m.at(l, now)
	if delta > 0 {
		more := max(0, min(delta, floor(maxNegative(l))-next.missing))
		if more > 0 {
			next.missing += more
			*m = next
		}
		return more
	}
	// What was poured in since cannot be given back; nor anything while others wait, or a part of a place.
	left := charged - next.refilled(at, next.boundary)
	last := next.boundary + ceilDiv(max(0, next.missing-l.Burst), l.Count)*next.length
	if last > max(at, now) || at > now && -delta < charged {
		left = 0
	}
	back := min(max(0, min(-delta, left)), next.missing)
	if back > 0 {
		next.missing -= back
		*m = next
	}
	return -back
}

// refilled is what was poured in after at, up to and including the boundary until.
func (m *intervalMeter) refilled(at, until int64) int64 {
	return max(0, ceilDiv(until-at, m.length)) * m.count
}

func (m *intervalMeter) leaves(gone func(int64) bool) bool { return gone(m.hasExpired()) }
