package step

// The fixed window counts the usage in the window that ends at ExpiresAt. Value holds the count in its low 33 bits.
// Once a soft limit has been exceeded, the other bits hold the time from the end of the grace period to the end of the
// window.

const (
	countBits = 33
	countMask = 1<<countBits - 1
	graceMost = 1<<(64-countBits) - 1
)

type window struct {
	start, end int64
	count      int64
	grace      int64 // in grains before end; 0 means until the end
}

func (p *Params) window(s State, now int64) window {
	if s.ExpiresAt <= now {
		return p.windowAt(now)
	}
	return window{
		start: s.ExpiresAt - p.Length, end: s.ExpiresAt,
		count: int64(s.Value & countMask), grace: int64(s.Value >> countBits),
	}
}

// windowAt returns the empty window that contains now.
func (p *Params) windowAt(now int64) window {
	w := window{start: now}
	switch p.Align {
	case FirstHit:
		w.end = now + p.Length
	case Calendar:
		w.start, w.end = p.Bounds(now)
	default:
		_, r := divide(uint64(now), uint64(p.Length), p.lengthInv)
		w.start = now - int64(r)
		w.end = w.start + p.Length
	}
	return w
}

// add counts delta at now. Exceeding a soft limit starts its grace period.
func (w window) add(p *Params, now, delta int64) window {
	before := w.count
	w.count = clamp(w.count, delta, countMask)
	if p.SoftExcess > 0 && before <= p.Count && w.count > p.Count {
		w.grace = 0
		if until := now + p.SoftPeriod; until < w.end {
			// More than graceMost is possible only for a clock that is behind the whole window.
			w.grace = min(ceilDiv(w.end-until, p.grain), graceMost)
		}
	}
	return w
}

func (w window) graceEnd(p *Params) int64 { return w.end - w.grace*p.grain }

// room returns the quota at now: for a soft limit with the excess, until its grace period ends.
func (w window) room(p *Params, now int64) int64 {
	if w.count > p.Count && now > w.graceEnd(p) {
		return 0
	}
	return max(0, p.limit-w.count)
}

func (p *Params) putWindow(w window) State {
	if w.count == 0 { // all was refunded
		return State{}
	}
	return State{ExpiresAt: w.end, Value: uint64(w.count) | uint64(w.grace)<<countBits, Shape: p.shape}
}

func (p *Params) takeWindow(s State, now int64, r Request) (State, Answer) {
	w := p.window(s, now)
	a := Answer{Remaining: w.room(p, now), At: now}
	if w.count > 0 {
		a.ResetAfter = w.end - now
	}
	if r.Cost > p.limit {
		a.Never = true
		return s, a
	}
	if r.Cost > a.Remaining {
		a.RetryAfter = w.end - now
		return s, a
	}
	w = w.add(p, now, r.Cost)
	a.Allowed, a.Granted = true, r.Cost
	a.Remaining, a.ResetAfter = w.room(p, now), w.end-now
	return p.putWindow(w), a
}

func (p *Params) adjustWindow(s State, now, at, delta int64) (State, int64) {
	w := p.window(s, now)
	before := w.count
	if delta > 0 {
		w = w.add(p, now, delta)
		return p.putWindow(w), w.count - before
	}
	if s.ExpiresAt <= now {
		return s, 0
	}
	if p.Align == Calendar {
		w.start, _ = p.Bounds(at)
		if _, end := p.Bounds(at); end != w.end {
			return s, 0
		}
	}
	if at < w.start || at >= w.end {
		return s, 0
	}
	w = w.add(p, at, delta)
	return p.putWindow(w), w.count - before
}
