package step

import (
	"math"
	"math/bits"
)

// The bucket is the generic cell rate algorithm. Its state is one time, at which the bucket will be full again. Each
// unit of cost moves it later by Length/Count, and a request is allowed if the result is at most one fill time ahead of
// now. A token bucket, a leaky bucket as a meter and a leaky bucket as a queue use the same sum; the queue only delays
// the caller until its own place.
//
// The time is ExpiresAt - Value/den: ExpiresAt is rounded up, and Value is the rounding. No precision is ever lost.
//
// A bucket with HasInitial differs for a key without a state: its new bucket holds Initial. The bucket fills from the
// first request on, so a denied request stores its state, too. The state is kept for keepFull after the bucket is full,
// so the time is ExpiresAt - keepFull - Value/den. Otherwise a key that pauses for less than keepFull would be treated
// as new, with less quota.

// keepFull is how long the state of a full bucket with HasInitial is kept: 24 h.
const keepFull = 24 * 3600 * 1_000_000

func (p *Params) compileBucket() {
	g := gcd(p.Count, p.Length)
	p.den = uint64(p.Count / g)
	p.perDen = uint64(p.Length / g)
	p.perDenInv = reciprocal(p.perDen)
	p.unitQ, p.unitR = p.dripTime(1)
	p.fillQ, p.fillR = p.dripTime(p.Burst)
	if p.HasInitial {
		p.newQ, p.newR = p.dripTime(p.Burst - p.Initial)
		p.keep = keepFull
	}
}

// dripTime returns the time in which cost drains, in microseconds and 1/den microseconds.
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
	if s.ExpiresAt <= now {
		return p.later(moment{at: now}, p.newQ, p.newR)
	}
	m := moment{s.ExpiresAt - p.keep, s.Value}
	if m.at <= now { // full, and kept for keepFull
		return moment{at: now}
	}
	if m.frac >= p.den { // of another limit with an equal fingerprint
		m.frac = 0
	}
	return m
}

// later returns m + q + r/den microseconds.
func (p *Params) later(m moment, q int64, r uint64) moment {
	m.at += q
	if m.frac < r {
		m.at++
		m.frac += p.den
	}
	m.frac -= r
	return m
}

// earlier returns m - q - r/den microseconds.
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
	if m.at > now+maxAhead {
		m = moment{at: now + maxAhead}
	}
	if m.at <= now {
		if p.HasInitial {
			return State{ExpiresAt: now + p.keep, Shape: p.shape}
		}
		return State{}
	}
	return State{ExpiresAt: m.at + p.keep, Value: m.frac, Shape: p.shape}
}

// begun returns s, or the state of a new bucket if s has expired. The parameters must have an initial level.
func (p *Params) begun(s State, now int64) State {
	if s.ExpiresAt <= now {
		return p.putBucket(p.fullAt(s, now), now)
	}
	return s
}

// Spent returns the state of a bucket whose usage at now is spent.
func (p *Params) Spent(now, spent int64) State {
	q, f := p.dripTime(spent)
	return p.putBucket(p.later(moment{at: now}, q, f), now)
}

func (p *Params) takeBucket(s State, now int64, r Request) (State, Answer) {
	before := p.fullAt(s, now)
	if r.Cost > p.Burst {
		return s, Answer{Never: true, Remaining: p.remainingAt(before, now), ResetAfter: before.at - now, At: now}
	}
	q, f := p.unitQ, p.unitR
	if r.Cost != 1 {
		q, f = p.dripTime(r.Cost)
	}
	after := p.later(before, q, f)

	retry := p.waitFor(after, now)
	delay := max(0, retry)
	allowed := retry <= 0 || retry <= r.MaxDelay
	if p.Queue {
		// The place is at the end of the queue. The queue's length bounds the delay unless the caller does.
		delay = before.at - now
		allowed = retry <= 0
		if r.MaxDelay > 0 && delay > r.MaxDelay {
			allowed = false
			retry = max(retry, delay-r.MaxDelay)
		}
	}
	if !allowed {
		if !p.Queue {
			retry -= r.MaxDelay // a place within MaxDelay is sufficient
		}
		return s, Answer{
			Remaining: p.remainingAt(before, now), RetryAfter: retry, ResetAfter: before.at - now, At: now,
		}
	}
	return State{ExpiresAt: after.at + p.keep, Value: after.frac, Shape: p.shape}, Answer{
		Allowed: true, Granted: r.Cost, Remaining: p.remainingAt(after, now), ResetAfter: after.at - now,
		Delay: delay, At: now + delay,
	}
}

// waitFor returns how much too early now is for a take that leaves the bucket full at after, rounded up. The take is
// allowed if after <= now + fill, so the result is after - now - fill.
func (p *Params) waitFor(after moment, now int64) int64 {
	late := after.at - now - p.fillQ
	if after.frac+p.fillR >= p.den {
		late--
	}
	return late
}

// remainingAt returns the bucket's size minus its backlog, which is rounded up.
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

// chargeBucket charges cost, at most the remaining quota.
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

// span is a length of time, q + f/den microseconds.
type span struct {
	q int64
	f uint64
}

func (a span) less(b span) bool { return a.q < b.q || a.q == b.q && a.f < b.f }

// minus returns a - b. If that is negative, q is rounded down.
func (a span) minus(p *Params, b span) span {
	if a.f < b.f {
		return span{a.q - b.q - 1, a.f + p.den - b.f}
	}
	return span{a.q - b.q, a.f - b.f}
}

// ahead returns the time until the bucket is full: its backlog.
func (p *Params) ahead(s State, now int64) span {
	full := p.fullAt(s, now)
	if full.frac > 0 {
		return span{full.at - now - 1, p.den - full.frac}
	}
	return span{full.at - now, 0}
}

// Cap returns the maximum backlog after a settlement: 10 × fill time + 1 h. It bounds how long a wrong actual cost, or
// a leaked token, can lock out a key. For a bucket it is a time of q + r/den microseconds, for an interval bucket q is
// a number of units.
func (p *Params) Cap() (q int64, r uint64) { return p.capQ, p.capR }

// capHour is the 1 h of Cap.
const capHour = 3600 * 1_000_000

func (p *Params) compileCap() {
	if p.Kind == Interval {
		hour, _ := mulDiv(uint64(p.Count), capHour, uint64(p.Length))
		p.capQ = addSat(mulSat(10, p.Burst), int64(min(hour, math.MaxInt64)))
		p.capQ = min(p.capQ, mulSat(maxAhead/p.Length, p.Count))
		return
	}
	p.capQ, p.capR = maxAhead, 0
	if p.fillQ < Horizon/10 {
		r, part := mulDiv(10, p.fillR, p.den)
		p.capQ, p.capR = 10*p.fillQ+int64(r)+capHour, part
	}
}

// chargeLate charges a bucket for a settlement's excess at now, and returns the charged amount. The part beyond the cap
// is forgiven.
func (p *Params) chargeLate(s State, now, delta int64) (State, int64) {
	more := p.drip(delta)
	room := span{p.capQ, p.capR}.minus(p, p.ahead(s, now))
	if room.q < 0 {
		return s, 0
	}
	if room.less(more) {
		more = room
	}
	return p.putBucket(p.later(p.fullAt(s, now), more.q, more.f), now), min(delta, p.unitsIn(more.q, more.f))
}

func (p *Params) drip(cost int64) span {
	q, f := p.dripTime(cost)
	return span{q, f}
}

// refundSpan makes the bucket full earlier by back. It returns the number of units by which the usage falls, as a
// negative number. Usage is rounded up before and after, as for [Answer.Remaining], so that a refund right after its
// charge reports all of it, and the reports of many refunds add up.
func (p *Params) refundSpan(s State, now int64, back span) (State, int64) {
	if back.q < 0 || back == (span{}) {
		return s, 0
	}
	given := p.unitsIn(back.q, back.f)
	if part := p.restOf(back); part > 0 && given < math.MaxInt64 {
		// The last unit of the usage may be used in part: a refund of at least that part frees it.
		if last := p.restOf(p.ahead(s, now)); last > 0 && part >= last {
			given++
		}
	}
	return p.putBucket(p.earlier(p.fullAt(s, now), back.q, back.f), now), -given
}

// settleBucket settles a take by its mark i, or without one if i is -1.
func (p *Params) settleBucket(s State, m *marks, i int, now, at int64, x Settlement) (State, int64) {
	if p.HasInitial && (x.Delta == 0 || x.Delta < 0 && s.ExpiresAt <= now) {
		return s, 0 // a refund creates no bucket, and a full one stays full
	}
	if x.Delta >= 0 {
		return p.chargeLate(s, now, x.Delta)
	}
	backlog := p.ahead(s, now)
	if !x.Settles {
		back := p.unmarked(s, now, at, x)
		if backlog.less(back) {
			back = backlog
		}
		if back.q >= 0 {
			m.lower(-1, 0, func(low int64) int64 { return span{low, 0}.minus(p, back).q })
		}
		return p.refundSpan(s, now, back)
	}
	if i < 0 { // the mark has expired, or was lost with the state
		return s, 0
	}
	low := span{m.all[i].low, 0}
	if backlog.less(low) {
		low = backlog
	}
	share := p.Share(x)
	back := span{share.Want, share.WantR}
	if low.less(back) {
		back = low
	}
	m.lower(i, low.minus(p, back).q, func(later int64) int64 {
		if l := (span{later, 0}); low.less(l) {
			return l.minus(p, back).q
		}
		return low.minus(p, back).q
	})
	return p.refundSpan(s, now, back)
}

// unmarked returns how much of a take without a mark can be refunded: the part that the take itself proves has not
// expired. It is zero if a place behind the take is promised: that place does not move, and the refund would overflow
// before it. Nor is a part of a place refunded, because then the backlog would no longer show how far ahead places are
// promised.
func (p *Params) unmarked(s State, now, at int64, x Settlement) span {
	if worn := p.earlier(p.fullAt(s, now), p.fillQ, p.fillR); worn.at > max(at, now) {
		return span{}
	}
	back, charged := p.drip(-x.Delta), p.drip(x.charged())
	if at > now {
		if back.less(charged) { // compared as times, as in the script: costs beyond Horizon are equal
			return span{}
		}
		return back
	}
	if left := charged.minus(p, span{now - at, 0}); left.less(back) {
		return left
	}
	return back
}

// settleQueue settles a take that has a place in a queue. The place is refunded only if there are no places behind it,
// because those are promised and cannot move up.
func (p *Params) settleQueue(s State, now, at int64, x Settlement) (State, int64) {
	if x.Delta >= 0 {
		return p.chargeLate(s, now, x.Delta)
	}
	if s.ExpiresAt <= now {
		return s, 0
	}
	full, charged := p.fullAt(s, now), p.drip(x.charged())
	if p.isAfter(p.earlier(full, charged.q, charged.f), moment{at: at}) {
		return s, 0
	}
	back := p.drip(-x.Delta)
	if backlog := p.ahead(s, now); backlog.less(back) {
		back = backlog
	}
	return p.refundSpan(s, now, back)
}

// restOf returns the remainder of a span after all whole units, in 1/den microseconds.
func (p *Params) restOf(a span) uint64 {
	hi, lo := bits.Mul64(uint64(a.q), p.den)
	lo, carry := bits.Add64(lo, a.f, 0)
	return bits.Rem64(hi+carry, lo, p.perDen)
}

// unitsIn returns the number of whole units that drain in q + f/den microseconds.
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
