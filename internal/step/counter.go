package step

// The sliding counter estimates the usage in the window that ends now: the count of the current aligned window, plus
// the count of the previous one times the fraction of it that is still inside. Value holds both counts. ExpiresAt is
// the end of the next window, when both have left.
//
// With sub-windows the grid is finer: whole sub-windows count in full and only the oldest is weighted, so that the
// error is that of one sub-window.

const weightOne = 1 << 16

type counter struct {
	start     int64 // of the current window
	cur, prev int64
}

func (p *Params) counter(s State, now int64) counter {
	if s.ExpiresAt <= now {
		return p.counterAt(now)
	}
	c := counter{
		start: s.ExpiresAt - 2*p.Length,
		cur:   int64(s.Value & MaxWindowCount), prev: int64(s.Value >> 32),
	}
	if now >= c.start+p.Length {
		c = counter{start: c.start + p.Length, prev: c.cur}
	}
	return c
}

// counterAt returns the empty counter of the window that contains now.
func (p *Params) counterAt(now int64) counter {
	_, r := divide(uint64(now), uint64(p.Length), p.lengthInv)
	return counter{start: now - int64(r)}
}

func (p *Params) putCounter(c counter) State {
	if c.cur == 0 { // unchanged since the previous window
		if c.prev == 0 {
			return State{}
		}
		c = counter{start: c.start - p.Length, cur: c.prev}
	}
	return State{ExpiresAt: c.start + 2*p.Length, Value: uint64(c.cur) | uint64(c.prev)<<32, Shape: p.shape}
}

// weight returns the fraction of the previous window that is still inside, in 1/65,536, rounded up. For a clock behind
// the state it is the whole window.
func weight(start, length int64, inv uint64, now int64) int64 {
	left := min(length, start+length-now)
	q, r := divide(uint64(left)<<16, uint64(length), inv)
	if r > 0 {
		q++
	}
	return int64(q)
}

// inside returns the part of the previous window's count that is still inside, rounded up.
func inside(count, start, length, now int64) int64 {
	return scale(count, min(length, start+length-now), length, true)
}

// convertCounter keeps the estimate of a counter with another length, or all of its count if that length is unknown, as
// usage at now.
func (p *Params) convertCounter(s State, now int64, known *Known) State {
	used := int64(s.Value&MaxWindowCount) + int64(s.Value>>32)
	if old := known.find(p, s.Shape); old != nil {
		was := old.counter(s, now)
		used = was.cur + inside(was.prev, was.start, old.Length, now)
	}
	c := p.counterAt(now)
	c.cur = saturate32(0, used)
	return p.putCounter(c)
}

// half returns the amount that rounding to the nearest adds before the estimate is truncated.
func (p *Params) half() int64 {
	if p.Nearest {
		return weightOne / 2
	}
	return 0
}

func (p *Params) counterUsed(c counter, now int64) int64 {
	if c.prev == 0 {
		return c.cur
	}
	return c.cur + (c.prev*weight(c.start, p.Length, p.lengthInv, now)+p.half())>>16
}

func (p *Params) takeCounter(s State, now int64, r Request) (State, Answer) {
	c := p.counter(s, now)
	used := p.counterUsed(c, now)
	a := Answer{Remaining: max(0, p.Count-used), ResetAfter: max(0, s.ExpiresAt-now), At: now}
	if r.Cost > p.Count {
		a.Never = true
		return s, a
	}
	if used+r.Cost > p.Count {
		a.RetryAfter = p.counterRetry(c, r.Cost) - now
		return s, a
	}
	c.cur += r.Cost
	s = p.putCounter(c)
	a.Allowed, a.Granted = true, r.Cost
	a.Remaining -= r.Cost
	a.ResetAfter = s.ExpiresAt - now
	return s, a
}

// counterRetry returns the first time at which cost is allowed if no others come.
func (p *Params) counterRetry(c counter, cost int64) int64 {
	room := p.Count - cost
	if c.cur <= room {
		return decayed(c.start, p.Length, c.prev, room-c.cur, p.half())
	}
	return decayed(c.start+p.Length, p.Length, c.cur, room, p.half())
}

// decayed returns the first time in [start, start+length] at which count, weighted, is at most room.
func decayed(start, length, count, room, half int64) int64 {
	most := (room<<16 + weightOne - 1 - half) / count // maximum weight that leaves room
	if most >= weightOne {
		return start
	}
	q, _ := mulDiv(uint64(most), uint64(length), weightOne)
	return start + length - int64(q)
}

func (p *Params) adjustCounter(s State, now, at, delta int64) (State, int64) {
	c := p.counter(s, now)
	n := &c.cur
	switch {
	case delta > 0:
	case at >= c.start && at < c.start+p.Length:
	case at >= c.start-p.Length && at < c.start:
		n = &c.prev
	default:
		return s, 0
	}
	before := *n
	*n = saturate32(before, delta)
	return p.putCounter(c), *n - before
}

// slices is a ring of Slices+1 counts. Sub-window i is at index i mod (Slices+1).
type slices struct {
	start int64 // of the current sub-window
	index int64 // its index in the ring
}

// slices updates the ring to now: it clears sub-windows that have left.
func (p *Params) slices(s State, words []uint64, now int64) slices {
	ring := words[:p.Slices+1]
	at := p.slicesAt(now)
	if s.ExpiresAt <= now {
		clear(ring)
		return at
	}
	last := s.ExpiresAt - (p.Slices+1)*p.slice // start of the sub-window last written
	if at.start <= last {
		return slices{start: last, index: last / p.slice % (p.Slices + 1)}
	}
	for start := last + p.slice; start <= at.start; start += p.slice {
		ring[start/p.slice%(p.Slices+1)] = 0
	}
	return at
}

type ring [MaxSlices + 1]uint64

// slicesCopy updates a copy to now. A peek or a denied take, whose clock may be ahead, must not clear sub-windows.
func (p *Params) slicesCopy(s State, words []uint64, now int64, room *ring) (slices, []uint64) {
	n := copy(room[:p.Slices+1], words)
	return p.slices(s, room[:n], now), room[:n]
}

// slicesAt returns the sub-window that contains now.
func (p *Params) slicesAt(now int64) slices {
	number, r := divide(uint64(now), uint64(p.slice), p.sliceInv)
	return slices{start: now - int64(r), index: int64(number) % (p.Slices + 1)}
}

// convertSlices keeps the estimate of a ring with another grid, or all of its counts if that grid is unknown, as usage
// at now.
func (p *Params) convertSlices(s State, words []uint64, now int64, known *Known) State {
	ring := words[:p.Slices+1]
	var oldest, worn int64
	if old := known.find(p, s.Shape); old != nil {
		at := old.slices(s, words, now)
		oldest = int64(ring[(at.index+1)%(p.Slices+1)])
		worn = oldest - inside(oldest, at.start, old.slice, now)
	}
	var total int64
	for _, n := range ring {
		total = addSat(total, int64(n))
	}
	clear(ring)
	at := p.slicesAt(now)
	ring[at.index] = uint64(total - worn)
	return p.putSlices(at)
}

func (p *Params) putSlices(at slices) State {
	return State{ExpiresAt: at.start + (p.Slices+1)*p.slice, Shape: p.shape}
}

// slicesUsed returns the sum of the sub-windows that are wholly inside, plus the weighted oldest.
func (p *Params) slicesUsed(at slices, words []uint64, now int64) int64 {
	var whole int64
	ring := words[:p.Slices+1]
	for _, n := range ring {
		whole += int64(n)
	}
	oldest := int64(ring[(at.index+1)%(p.Slices+1)])
	return whole - oldest + (oldest*weight(at.start, p.slice, p.sliceInv, now)+p.half())>>16
}

func (p *Params) takeSlices(s State, words []uint64, now int64, r Request) (State, Answer) {
	var room ring
	at, ring := p.slicesCopy(s, words, now, &room)
	used := p.slicesUsed(at, ring, now)
	a := Answer{Remaining: max(0, p.Count-used), ResetAfter: max(0, s.ExpiresAt-now), At: now}
	if r.Cost > p.Count {
		a.Never = true
		return s, a
	}
	if used+r.Cost > p.Count {
		a.RetryAfter = p.slicesRetry(at, ring, r.Cost) - now
		return s, a
	}
	a.Allowed, a.Granted = true, r.Cost
	a.Remaining -= r.Cost
	if r.DryRun {
		return s, a
	}
	ring[at.index] += uint64(r.Cost)
	copy(words, ring)
	s = p.putSlices(at)
	a.ResetAfter = s.ExpiresAt - now
	return s, a
}

// slicesRetry advances sub-window by sub-window, with the oldest decaying in each, until cost is allowed.
func (p *Params) slicesRetry(at slices, words []uint64, cost int64) int64 {
	ring := words[:p.Slices+1]
	var whole int64
	for _, n := range ring {
		whole += int64(n)
	}
	room := p.Count - cost
	for i := int64(0); ; i++ {
		oldest := int64(ring[(at.index+1+i)%(p.Slices+1)])
		whole -= oldest
		start := at.start + i*p.slice
		if whole <= room {
			if oldest == 0 {
				return start
			}
			return decayed(start, p.slice, oldest, room-whole, p.half())
		}
	}
}

func (p *Params) chargeSlices(s State, words []uint64, now, cost int64) State {
	at := p.slices(s, words, now)
	words[at.index] = uint64(saturate32(int64(words[at.index]), cost))
	return p.putSlices(at)
}

func (p *Params) adjustSlices(s State, words []uint64, now, at, delta int64) (State, int64) {
	if delta > 0 {
		cur := p.slices(s, words, now)
		before := int64(words[cur.index])
		after := saturate32(before, delta)
		words[cur.index] = uint64(after)
		return p.putSlices(cur), after - before
	}
	var room ring
	cur, ring := p.slicesCopy(s, words, now, &room)
	number := at / p.slice
	age := cur.start/p.slice - number
	if age < 0 || age > p.Slices || s.ExpiresAt <= now {
		return s, 0
	}
	n := &ring[number%(p.Slices+1)]
	back := min(int64(*n), -delta)
	if back == 0 {
		return s, 0
	}
	*n -= uint64(back)
	copy(words, ring)
	for range p.Slices + 1 { // the newest non-empty sub-window determines when all have left
		if ring[cur.index] > 0 {
			return p.putSlices(cur), -back
		}
		cur.start -= p.slice
		cur.index = (cur.index + p.Slices) % (p.Slices + 1)
	}
	return State{}, -back
}
