package step

// StateFromAnswer returns a state that is consistent with a decision about a key that is counted elsewhere: at now this
// quota remained, and the key will be fully reset after resetAfter. A decision determines a bucket completely, but not
// by how much a window is exceeded, nor how a counter's usage is divided between its two windows. Those are taken from
// s, the previous estimate. It supports narrow states without a grace period.
func (p *Params) StateFromAnswer(s State, now, remaining, resetAfter int64) State {
	switch {
	case p.Kind == Bucket:
		return p.putBucket(moment{at: now + resetAfter}, now)
	case resetAfter <= 0:
		return State{}
	}
	switch p.Kind {
	case Window:
		w := window{end: now + resetAfter, count: p.Count - remaining}
		if remaining == 0 && s.ExpiresAt == w.end {
			w.count = max(w.count, int64(s.Value&countMask))
		}
		return p.putWindow(w)
	default:
		return p.putCounter(p.counterFromAnswer(s, now, p.Count-remaining, resetAfter))
	}
}

func (p *Params) counterFromAnswer(s State, now, used, resetAfter int64) counter {
	c := p.counter(s, now)
	more := used - p.counterUsed(c, now)
	if used == p.Count { // at least the limit is used, and the estimate may be more
		more = max(0, more)
	}
	share := weight(c.start, p.Length, p.lengthInv, now)
	switch {
	case resetAfter <= p.Length: // last used in the previous window
		return counter{start: c.start - p.Length, cur: p.counterBefore(used, share)}
	case c.cur+more > 0:
		c.cur += more
	case used == p.Count:
		c.cur = 1
	default: // part of the usage is in this window, and the rest in the previous one
		c.cur = min(1, used)
		c.prev = min(c.prev, p.counterBefore(used-c.cur, share))
	}
	return c
}

// counterBefore returns the count of the previous window whose weighted share is n.
func (p *Params) counterBefore(n, share int64) int64 {
	return min(ceilDiv(n*weightOne, max(1, share)), MaxWindowCount)
}

// Used returns the usage that has not expired, a negative balance included. It supports the states of StateFromAnswer.
func (p *Params) Used(s State, now int64) int64 {
	switch p.Kind {
	case Bucket:
		full := p.fullAt(s, now)
		q, f := full.at-now, uint64(0)
		if full.frac > 0 {
			q, f = q-1, p.den-full.frac
		}
		return p.unitsIn(q, f)
	case Window:
		return p.window(s, now).count
	default:
		return p.counterUsed(p.counter(s, now), now)
	}
}
