package step

import (
	"math"
	"math/bits"
)

// The bucket is the generic cell rate algorithm. Its state is one moment, the time at which the bucket will be full
// again; each unit of cost moves it later by Length/Count, and a request fits if it ends up no further ahead of now
// than a full bucket takes to fill. A token bucket, a leaky bucket as a meter and a leaky bucket as a queue are the
// same sum; the queue only tells the caller to wait until its own drop falls.
//
// The moment is FreshAt - Value/den: FreshAt is rounded up, Value holds the rounding. No precision is ever lost.

func (p *Params) compileBucket() {
	g := gcd(p.Count, p.Length)
	p.den = uint64(p.Count / g)
	p.perDen = uint64(p.Length / g)
	p.perDenInv = reciprocal(p.perDen)
	p.unitQ, p.unitR = p.dripTime(1)
	p.fillQ, p.fillR = p.dripTime(p.Burst)
}

// dripTime is how long cost takes to drip, in microseconds and 1/den microseconds.
func (p *Params) dripTime(cost int64) (int64, uint64) {
	q, r := mulDiv(uint64(cost), p.perDen, p.den)
	if q > Horizon {
		return Horizon, 0
	}
	return int64(q), r
}

// moment is a time with a fraction: at - frac/den, with frac < den.
type moment struct {
	at   int64
	frac uint64
}

func (p *Params) fullAt(s State, now int64) moment {
	if s.FreshAt <= now {
		return moment{at: now}
	}
	m := moment{s.FreshAt, s.Value}
	if m.frac >= p.den { // of another limit whose fingerprint is the same by accident
		m.frac = 0
	}
	return m
}

// later moves m by q + r/den microseconds.
func (p *Params) later(m moment, q int64, r uint64) moment {
	m.at += q
	if m.frac < r {
		m.at++
		m.frac += p.den
	}
	m.frac -= r
	return m
}

// earlier moves m back by q + r/den microseconds.
func (p *Params) earlier(m moment, q int64, r uint64) moment {
	m.at -= q
	m.frac += r
	if m.frac >= p.den {
		m.at--
		m.frac -= p.den
	}
	return m
}

func (p *Params) putBucket(m moment, now int64) State {
	if m.at > now+furthest {
		m = moment{at: now + furthest}
	}
	if m.at <= now {
		return State{}
	}
	return State{FreshAt: m.at, Value: m.frac, Shape: p.shape}
}

func (p *Params) takeBucket(s State, now int64, r Request) (State, Answer) {
	if r.Cost > p.Burst {
		return s, Answer{Never: true, Remaining: p.bucketRemaining(s, now), ResetAfter: max(0, s.FreshAt-now), At: now}
	}
	before := p.fullAt(s, now)
	q, f := p.unitQ, p.unitR
	if r.Cost != 1 {
		q, f = p.dripTime(r.Cost)
	}
	after := p.later(before, q, f)

	retry := p.lateBy(after, now)
	delay := max(0, retry)
	allowed := retry <= 0 || retry <= r.MaxDelay
	if p.Queue {
		// The place in the queue is behind what is in it; the queue's length bounds the wait unless the caller does.
		delay = before.at - now
		allowed = retry <= 0
		if r.MaxDelay > 0 && delay > r.MaxDelay {
			allowed = false
			retry = max(retry, delay-r.MaxDelay)
		}
	}
	if !allowed {
		if !p.Queue {
			retry -= r.MaxDelay // a place that is near enough will do
		}
		return s, Answer{
			Remaining: p.remainingAt(before, now), RetryAfter: retry, ResetAfter: before.at - now, At: now,
		}
	}
	return State{FreshAt: after.at, Value: after.frac, Shape: p.shape}, Answer{
		Allowed: true, Granted: r.Cost, Remaining: p.remainingAt(after, now), ResetAfter: after.at - now,
		Delay: delay, At: now + delay,
	}
}

// lateBy is how much too early now is for a take that leaves the bucket full at after: it fits if after <= now + fill,
// and otherwise so much later as after exceeds that, rounded up.
func (p *Params) lateBy(after moment, now int64) int64 {
	late := after.at - now - p.fillQ
	if after.frac+p.fillR >= p.den {
		late--
	}
	return late
}

func (p *Params) bucketRemaining(s State, now int64) int64 {
	return p.remainingAt(p.fullAt(s, now), now)
}

// remainingAt is the bucket's size less what has not yet dripped, rounded up.
func (p *Params) remainingAt(full moment, now int64) int64 {
	ahead := full.at - now
	if ahead <= 0 {
		return p.Burst
	}
	hi, lo := bits.Mul64(uint64(ahead), p.den)
	if lo < full.frac {
		hi--
	}
	lo -= full.frac
	var used, rem uint64
	switch {
	case hi == 0:
		used, rem = divide(lo, p.perDen, p.perDenInv)
	case hi < p.perDen:
		used, rem = bits.Div64(hi, lo, p.perDen)
	default:
		used = math.MaxInt64
	}
	if rem > 0 {
		used++
	}
	if used >= uint64(p.Burst) {
		return 0
	}
	return p.Burst - int64(used)
}

// chargeBucket takes what is left and no more.
func (p *Params) chargeBucket(s State, now, cost int64) State {
	before := p.fullAt(s, now)
	empty := p.later(moment{at: now}, p.fillQ, p.fillR)
	if !p.isAfter(empty, before) {
		return s
	}
	q, f := p.dripTime(min(cost, p.Burst))
	after := p.later(before, q, f)
	if p.isAfter(after, empty) {
		after = empty
	}
	return p.putBucket(after, now)
}

func (p *Params) isAfter(a, b moment) bool {
	return a.at > b.at || a.at == b.at && a.frac < b.frac
}

func (p *Params) adjustBucket(s State, now, at, delta int64) (State, int64) {
	full := p.fullAt(s, now)
	if delta >= 0 {
		if full.at <= now { // the key may have been forgotten, so all there is to go by is the take's time
			full = moment{at: at}
		}
		q, f := p.dripTime(delta)
		return p.putBucket(p.later(full, q, f), now), delta
	}
	if full.at <= now {
		return s, 0
	}
	q, f := p.dripTime(-delta)
	if p.Queue && p.isAfter(p.earlier(full, q, f), moment{at: at}) {
		return s, 0 // others stand behind it, and their places are given: its own cannot be filled
	}
	// What of the take has dripped since cannot be given back. Nor, for a place that is not reached yet, can what will
	// have dripped by the last place behind it: those stay where they are, and what came back would overflow before.
	worn, since := moment{at: now}, at
	if at > now && !p.Queue {
		worn, since = p.earlier(full, p.fillQ, p.fillR), at-1 // at is a place rounded up
	}
	left := p.later(moment{}, q, f)
	if worn.at > at {
		left = p.later(left, since-worn.at, worn.frac)
	}
	if missing := (moment{full.at - now, full.frac}); p.isAfter(left, missing) {
		left = missing
	}
	if left.at <= 0 {
		return s, 0
	}
	q, f = left.at, 0
	if left.frac > 0 { // back from at - frac/den to q + f/den
		q, f = left.at-1, p.den-left.frac
	}
	return p.putBucket(p.earlier(full, q, f), now), -p.unitsIn(q, f)
}

// unitsIn is how many whole units drip in q + f/den microseconds.
func (p *Params) unitsIn(q int64, f uint64) int64 {
	hi, lo := bits.Mul64(uint64(q), p.den)
	lo, carry := bits.Add64(lo, f, 0)
	hi += carry
	if hi >= p.perDen {
		return math.MaxInt64
	}
	n, _ := bits.Div64(hi, lo, p.perDen)
	return int64(n)
}
