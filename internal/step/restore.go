package step

// StateFromAnswer returns the state that explains an answer about a key that is counted elsewhere: at now this remained, and the
// key will be fresh so much later. An answer tells all about a bucket, but not by how much a window is overspent, nor
// which of a counter's two windows holds what: there s, which was believed so far, fills in. It is for narrow states
// without a grace.
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
	if used == p.Count { // at least the limit is used, and more may be believed
		more = max(0, more)
	}
	share := weight(c.start, p.Length, p.lengthInv, now)
	switch {
	case resetAfter <= p.Length: // it was last spent from in the window before
		return counter{start: c.start - p.Length, cur: p.counterBefore(used, share)}
	case c.cur+more > 0:
		c.cur += more
	case used == p.Count:
		c.cur = 1
	default: // something of what is used is in this window, and all else in the one before
		c.cur = min(1, used)
		c.prev = min(c.prev, p.counterBefore(used-c.cur, share))
	}
	return c
}

// counterBefore is what the window before must hold for its share to be n.
func (p *Params) counterBefore(n, share int64) int64 {
	return min(ceilDiv(n*weightOne, max(1, share)), MaxWindowCount)
}

// Used is what was spent and has not worn off, debt included. It is for the states of StateFromAnswer.
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
