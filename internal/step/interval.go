package step

// The interval bucket is a token bucket that is refilled by Count at the end of each interval. Its state is the
// boundary at which it will be full again and, in Value, the overflow of that last refill. Boundaries are at ExpiresAt
// - k*Length, so that a bucket keeps its own grid until it is full.

// interval returns the amount missing from the bucket, and the last boundary up to now.
func (p *Params) interval(s State, now int64) (deficit, base int64) {
	if s.ExpiresAt <= now {
		if p.Align == FirstHit {
			return 0, now
		}
		_, r := divide(uint64(now), uint64(p.Length), p.lengthInv)
		return 0, now - int64(r)
	}
	refills := ceilDiv(s.ExpiresAt-now, p.Length)
	overflow := min(int64(s.Value), p.Count-1)
	return mulSat(refills, p.Count) - overflow, s.ExpiresAt - refills*p.Length
}

func (p *Params) putInterval(deficit, base int64) State {
	if deficit <= 0 {
		return State{}
	}
	refills := ceilDiv(deficit, p.Count)
	if refills > maxAhead/p.Length {
		refills = maxAhead / p.Length
		deficit = refills * p.Count
	}
	return State{ExpiresAt: base + refills*p.Length, Value: uint64(refills*p.Count - deficit), Shape: p.shape}
}

func (p *Params) takeInterval(s State, now int64, r Request) (State, Answer) {
	deficit, base := p.interval(s, now)
	a := Answer{Remaining: max(0, p.Burst-deficit), ResetAfter: max(0, s.ExpiresAt-now), At: now}
	if r.Cost > p.Burst {
		a.Never = true
		return s, a
	}
	if over := deficit - (p.Burst - r.Cost); over > 0 {
		wait := base + ceilDiv(over, p.Count)*p.Length - now
		if wait > r.MaxDelay {
			a.RetryAfter = wait - r.MaxDelay // a place within MaxDelay is sufficient
			return s, a
		}
		a.Delay = wait
	}
	s = p.putInterval(deficit+r.Cost, base)
	a.Allowed, a.Granted = true, r.Cost
	a.Remaining = max(0, p.Burst-deficit-r.Cost)
	a.ResetAfter = s.ExpiresAt - now
	a.At = now + a.Delay
	return s, a
}

func (p *Params) chargeInterval(s State, now, cost int64) State {
	deficit, base := p.interval(s, now)
	if deficit >= p.Burst {
		return s
	}
	return p.putInterval(min(addSat(deficit, cost), p.Burst), base)
}

// settleInterval settles a take by its mark i, or without one if i is -1.
func (p *Params) settleInterval(s State, m *marks, i int, now, at int64, x Settlement) (State, int64) {
	deficit, base := p.interval(s, now)
	if x.Delta >= 0 {
		more := min(x.Delta, max(0, p.capQ-deficit))
		if more == 0 {
			return s, 0
		}
		return p.putInterval(deficit+more, base), more
	}
	var back int64
	if x.Settles {
		if i < 0 { // the mark has expired, or was lost with the state
			return s, 0
		}
		low := min(m.all[i].low, deficit)
		back = min(p.Share(x).Want, low)
		m.lower(i, low-back, func(later int64) int64 { return max(later, low) - back })
	} else {
		back = min(p.unmarkedInterval(deficit, base, now, at, x), deficit)
		m.lower(-1, 0, func(low int64) int64 { return low - back })
	}
	if back <= 0 {
		return s, 0
	}
	return p.putInterval(deficit-back, base), -back
}

// unmarkedInterval returns how much of a take without a mark can be refunded; see unmarked.
func (p *Params) unmarkedInterval(deficit, base, now, at int64, x Settlement) int64 {
	last := base + ceilDiv(max(0, deficit-p.Burst), p.Count)*p.Length // last promised place
	switch {
	case last > max(at, now) || at > now && -x.Delta < x.charged():
		return 0
	case at > now:
		return -x.Delta
	}
	return max(0, min(-x.Delta, x.charged()-p.refilled(at, base)))
}

// refilled returns the amount refilled after at, up to and including the boundary until.
func (p *Params) refilled(at, until int64) int64 {
	if at >= until {
		return 0
	}
	return mulSat(ceilDiv(until-at, p.Length), p.Count)
}
