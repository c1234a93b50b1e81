package step

// The interval bucket is a token bucket that is refilled Count at a time, at the end of each interval. Its state is
// the boundary at which it will be full again and, in Value, by how much that last refill will overflow. Boundaries
// lie at FreshAt - k*Length, so that a bucket keeps its own grid until it is full.

// interval returns what is missing from the bucket and the boundary at or before now.
func (p *Params) interval(s State, now int64) (deficit, base int64) {
	if s.FreshAt <= now {
		if p.Align == FirstHit {
			return 0, now
		}
		_, r := divide(uint64(now), uint64(p.Length), p.lengthInv)
		return 0, now - int64(r)
	}
	refills := ceilDiv(s.FreshAt-now, p.Length)
	overflow := min(int64(s.Value), p.Count-1)
	return mulSat(refills, p.Count) - overflow, s.FreshAt - refills*p.Length
}

func (p *Params) putInterval(deficit, base int64) State {
	if deficit <= 0 {
		return State{}
	}
	refills := ceilDiv(deficit, p.Count)
	if refills > Horizon/p.Length {
		refills = Horizon/p.Length + 1
		deficit = refills * p.Count
	}
	return State{FreshAt: base + refills*p.Length, Value: uint64(refills*p.Count - deficit), Shape: p.shape}
}

func (p *Params) takeInterval(s State, now int64, r Request) (State, Answer) {
	deficit, base := p.interval(s, now)
	a := Answer{Remaining: max(0, p.Burst-deficit), ResetAfter: max(0, s.FreshAt-now), At: now}
	if r.Cost > p.Burst {
		a.Never = true
		return s, a
	}
	if over := deficit - (p.Burst - r.Cost); over > 0 {
		a.RetryAfter = base + ceilDiv(over, p.Count)*p.Length - now
		if a.RetryAfter > r.MaxDelay {
			return s, a
		}
		a.Delay, a.RetryAfter = a.RetryAfter, 0
	}
	s = p.putInterval(deficit+r.Cost, base)
	a.Allowed, a.Granted = true, r.Cost
	a.Remaining = max(0, p.Burst-deficit-r.Cost)
	a.ResetAfter = s.FreshAt - now
	a.At = now + a.Delay
	return s, a
}

func (p *Params) chargeInterval(s State, now, cost int64) State {
	deficit, base := p.interval(s, now)
	return p.putInterval(max(deficit, min(addSat(deficit, cost), p.Burst)), base)
}

func (p *Params) adjustInterval(s State, now, at, delta int64) (State, int64) {
	deficit, base := p.interval(s, now)
	var refilled int64 // since the take
	if at < base {
		refilled = mulSat(ceilDiv(base-at, p.Length), p.Count)
	}
	if delta >= 0 {
		return p.putInterval(addSat(deficit, max(0, delta-refilled)), base), delta
	}
	given := min(max(0, -delta-refilled), deficit)
	return p.putInterval(deficit-given, base), -given
}
