package storetest

import (
	"math/big"
	"time"

	"github.com/sluiceproject/sluice"
)

// bucketMeter is a bucket that is refilled, or leaks, continuously. It holds Burst, and is refilled at Count per
// Window. Its state is the time when the bucket is full again, from which the number of tokens follows. When the limit
// changes, the missing share of the bucket stays the same.
//
// With an Initial, the bucket of a new key holds Initial and is refilled from the first request on. A key is new if it
// was never used, or if its bucket has been full for keptFull.
type bucketMeter struct {
	full  *big.Rat // nil: full, or new
	fill  *big.Rat // time to fill it when empty, and its burst, under the limit at the last write
	burst int64
	kept  bool // kept for keptFull once it is full
}

// keptFull is how long the state of a bucket with an Initial is kept once it is full.
const keptFull = int64(24 * time.Hour / time.Microsecond)

// isNew reports whether the bucket is that of a new key.
func (m *bucketMeter) isNew(l *sluice.Limit, t int64) bool {
	return l.Initial != 0 && (m.full == nil || m.hasExpired() <= t)
}

// fullAt returns when the bucket is full, or nil if it is full.
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

// fillOf returns how long it takes to fill an empty bucket.
func fillOf(l *sluice.Limit) *big.Rat { return new(big.Rat).Quo(whole(l.Burst), rate(l)) }

// rate returns Count per Window, in tokens per microsecond.
func rate(l *sluice.Limit) *big.Rat { return big.NewRat(l.Count, l.Window.Microseconds()) }

func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// floor rounds down.
func floor(r *big.Rat) int64 {
	return new(big.Int).Div(r.Num(), r.Denom()).Int64() // Euclidean division; the denominator is positive
}

func ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }

// tokens returns the number of tokens in the bucket, negative for a negative balance.
func (m *bucketMeter) tokens(l *sluice.Limit, t int64) *big.Rat {
	full := m.fullAt(l, t)
	if full == nil {
		return whole(l.Burst)
	}
	missing := new(big.Rat).Sub(full, whole(t))
	missing.Mul(missing, rate(l))
	return missing.Sub(whole(l.Burst), missing)
}

// adopted keeps the missing share, including a negative balance up to its maximum. The time is rounded to whole
// microseconds when it changes. A bucket that is full has been full since the same time, which counts if the clock goes back.
func (m *bucketMeter) adopted(l *sluice.Limit, now int64) meter {
	if m.full == nil || m.hasExpired() <= now || m.burst == l.Burst && m.fill.Cmp(fillOf(l)) == 0 {
		return m
	}
	changed := &bucketMeter{full: m.full, fill: fillOf(l), burst: l.Burst, kept: m.kept}
	if ratio := new(big.Rat).Quo(changed.fill, m.fill); ratio.Cmp(whole(1)) != 0 {
		left := new(big.Rat).Sub(m.full, whole(now))
		if left.Sign() > 0 {
			left = minOf(left.Mul(left, ratio), new(big.Rat).Quo(maxNegative(l), rate(l)))
		}
		changed.full = whole(now + ceil(left))
	}
	return changed
}

func (m *bucketMeter) held() int64 { return m.burst }

func (m *bucketMeter) fits(l *sluice.Limit, t, cost int64) bool {
	return m.tokens(l, t).Cmp(whole(cost)) >= 0
}

// reaches returns when the bucket contains this many tokens.
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

// later takes cost out of the bucket as of the time at.
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

// charge takes the available tokens and no more.
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

// maxNegative returns the maximum backlog after a settlement: ten bursts plus the refill of one hour.
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

// freed returns by how many units Remaining rises after a refund, where the missing amount is rounded up before and
// after.
func freed(missing, back *big.Rat) int64 {
	return ceil(missing) - ceil(new(big.Rat).Sub(missing, back))
}

// returnable returns how much of a take can be refunded: the part that has not been refilled since, or for a queue all
// of it.
func (m *bucketMeter) returnable(l *sluice.Limit, now, at, charged, cost int64) *big.Rat {
	if l.Algorithm == sluice.LeakyQueue {
		// Takes behind a place in the queue have a promised time: only the last place can be refunded.
		without := new(big.Rat).Sub(m.full, new(big.Rat).Quo(whole(charged), rate(l)))
		if without.Cmp(whole(at)) > 0 {
			return new(big.Rat)
		}
		return whole(cost)
	}
	// Delayed takes keep their times, and until the last of them refunded tokens would overflow.
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

// settle removes the state of a full bucket, or keeps that it is full since now.
func (m *bucketMeter) settle(now int64) {
	if m.full.Cmp(whole(now)) <= 0 {
		if m.full = nil; m.kept {
			m.full = whole(now)
		}
	}
}

func (m *bucketMeter) leaves(gone func(int64) bool) bool { return gone(m.hasExpired()) }

// intervalMeter is a bucket that is refilled by Count at the end of each Window. When it is full, a new interval starts
// with the next take, or at a multiple of the window, depending on the limit's alignment.
type intervalMeter struct {
	missing int64 // missing tokens from boundary until the next refill
	boundary,
	count, length, burst int64 // of the limit at the last write
}

func (m *intervalMeter) held() int64 { return m.burst }

// fullAt returns the refill after which nothing is missing, and by how much that refill exceeds the missing amount.
func (m *intervalMeter) fullAt() (at, spare int64) {
	if m.missing <= 0 {
		return 0, 0
	}
	refills := ceilDiv(m.missing, m.count)
	return m.boundary + refills*m.length, refills*m.count - m.missing
}

// at returns the meter at the time t.
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

// adopted keeps the missing share, rounded up, in the current interval of the new limit.
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

// charge takes the available tokens and no more.
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
	// Tokens refilled since cannot be refunded; nor any while others are delayed, nor a part of a delayed take.
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

// refilled returns the tokens refilled after at, up to and including the refill at until.
func (m *intervalMeter) refilled(at, until int64) int64 {
	return max(0, ceilDiv(until-at, m.length)) * m.count
}

func (m *intervalMeter) leaves(gone func(int64) bool) bool { return gone(m.hasExpired()) }
