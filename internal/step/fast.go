package step

// Results of Fast other than a retry time.
const (
	Fits      = 0  // allowed
	Undecided = -1 // not a case of the fast path: call Take
)

// Fast is Take for the common case, a request that is allowed now or denied. Its decisions are equal to those of Take,
// but its arguments and results are integers that fit in registers, which makes it several times faster. For other
// cases it returns Undecided. On a denial, retry is the RetryAfter and the state is unchanged.
func (p *Params) Fast(fresh int64, value uint64, shape uint8, now, cost int64) (nextFresh int64, nextValue uint64, retry, remaining int64) {
	switch p.fast {
	case fastBucket:
		if uint64(cost) > uint64(p.Burst) || fresh > now && shape != p.shape {
			break
		}
		after, room := p.FastBucket(fresh, now, cost)
		if room < 0 {
			return fresh, value, -room, p.FastUnits(max(0, now+p.fillQ-max(fresh, now)))
		}
		return after, 0, Fits, p.FastUnits(room)
	case fastFraction:
		if uint64(cost) > uint64(p.Burst) || fresh > now && (shape != p.shape || value >= p.den) {
			break
		}
		before := moment{at: now}
		if fresh > now {
			before = moment{fresh, value}
		}
		q, f := p.unitQ, p.unitR
		if cost != 1 {
			q, f = p.dripTime(cost)
		}
		after := p.later(before, q, f)
		if retry := p.waitFor(after, now); retry > 0 {
			return fresh, value, retry, p.remainingAt(before, now)
		}
		return after.at, after.frac, Fits, p.remainingAt(after, now)
	case fastWindow:
		if fresh <= now || shape != p.shape || uint64(cost) > uint64(p.Count) {
			break
		}
		left := p.Count - int64(value&countMask)
		if cost > left {
			return fresh, value, fresh - now, max(0, left)
		}
		return fresh, value + uint64(cost), Fits, left - cost
	case fastCounter:
		if fresh <= now || shape != p.shape || uint64(cost) > uint64(p.Count) {
			break
		}
		c := p.counter(State{fresh, value, shape}, now)
		left := p.Count - p.counterUsed(c, now)
		if cost > left {
			return fresh, value, p.counterRetry(c, cost) - now, max(0, left)
		}
		return c.start + 2*p.Length, uint64(c.cur+cost) | uint64(c.prev)<<32, Fits, left - cost
	}
	return fresh, value, Undecided, 0
}

// HasFast reports whether Fast can decide for this limit.
func (p *Params) HasFast() bool { return p.fast != 0 }

// HasFastBucket reports whether FastBucket may be used for costs up to the limit, and states of the limit's shape.
func (p *Params) HasFastBucket() bool { return p.fast == fastBucket }

// FastBucket returns, for a bucket whose times are whole microseconds, when the bucket would be full after the take,
// and how much time is left to use then. The take is allowed if room is not negative.
func (p *Params) FastBucket(fresh, now, cost int64) (after, room int64) {
	after = max(fresh, now) + cost*p.unitQ
	return after, now + p.fillQ - after
}

// FastUnits returns the cost that drains in a time.
func (p *Params) FastUnits(room int64) int64 {
	n, _ := divide(uint64(room), p.perDen, p.perDenInv)
	return int64(n)
}

// HasFastCounter reports whether FastCounter may be used for costs up to the limit.
func (p *Params) HasFastCounter() bool { return p.fast == fastCounter }

// CounterAt returns the parts of a counter that depend only on the time: ExpiresAt of a state written now, and the
// weight of the previous window.
func (p *Params) CounterAt(now int64) (fresh, weight int64) {
	_, into := divide(uint64(now), uint64(p.Length), p.lengthInv)
	gone, _ := divide(into<<16, uint64(p.Length), p.lengthInv)
	return now - int64(into) + 2*p.Length, weightOne - int64(gone)
}

// FastCounter returns the counts of a counter's state after the take, and the remaining quota then. The take is allowed
// if left is not negative. The state is of the current window, or with passed 1 of the previous one. weight is that of
// CounterAt.
func (p *Params) FastCounter(value, passed uint64, weight, cost int64) (after uint64, left int64) {
	value <<= passed * 32 & 63 // the current window becomes the previous one
	used := int64(value&MaxWindowCount) + (int64(value>>32)*weight+p.half())>>16
	return value + uint64(cost), p.Count - used - cost
}

const (
	fastBucket   = iota + 1 // times are whole microseconds
	fastFraction            // times have a fraction
	fastWindow              // not soft
	fastCounter
)

func (p *Params) compileFast() uint8 {
	switch {
	case p.HasInitial: // new keys and expiry differ
		return 0
	case p.Kind == Bucket && !p.Queue && p.den == 1:
		return fastBucket
	case p.Kind == Bucket && !p.Queue:
		return fastFraction
	case p.Kind == Window && p.SoftExcess == 0:
		return fastWindow
	case p.Kind == Counter:
		return fastCounter
	}
	return 0
}
