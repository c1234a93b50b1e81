package step

// A take that will be settled leaves a mark, so that its unused part can be refunded exactly.
//
// A bucket's backlog is the amount missing from it. If an earlier take had been charged less, the backlog would be
// smaller by that amount, or by the lowest backlog since then if that is less: at that point the bucket would have been
// full, and further refill would have been lost. So a mark keeps the lowest backlog since its time, and the amount that
// was reserved since then and is not settled. A take is refunded its unused part, at most the low of the last mark that
// is not after it.
//
// A key with marks has a wide state. Its words are its value, the number of marks, and time, low and out of each,
// oldest first. For a bucket low and out are whole microseconds, low rounded down and out rounded up; for an interval
// bucket they are units. When the last mark is deleted the state is narrow again, as for a key without settlements.

const (
	// MaxMarks is the maximum number of marks of a key. A further mark is merged into the previous one, which allows
	// less to be refunded.
	MaxMarks = 32

	markHeader = 2
	markWords  = 3

	// markTTL is how long a take can be refunded by its mark.
	markTTL = 2 * 3600 * 1_000_000
	// maxMarkAmount is the maximum amount in a mark, up to which Lua's numbers are exact.
	maxMarkAmount = 1 << 52
)

type mark struct {
	time int64
	low  int64 // lowest backlog since time
	out  int64 // reserved from time to the next mark's time, and not settled
}

type marks struct {
	n   int
	all [MaxMarks + 1]mark
}

// keepsMarks reports whether takes under this limit can leave marks. A place in a queue cannot, because the places
// behind it are promised.
func (p *Params) keepsMarks() bool { return p.Kind == Bucket && !p.Queue || p.Kind == Interval }

// markRoom returns the number of marks for which the words have room.
func markRoom(words []uint64) int { return max(0, min(MaxMarks, (len(words)-markHeader)/markWords)) }

// PlausibleMarks reports whether words can be those of a bucket with marks.
func PlausibleMarks(words []uint64) bool {
	if len(words) < markHeader || words[1] == 0 || words[1] > uint64(markRoom(words)) {
		return false
	}
	last := int64(-1)
	for i := range int(words[1]) {
		m := words[markHeader+markWords*i:]
		if int64(m[0]) <= last || m[0] > MaxTime || m[1] > maxMarkAmount || m[2] > maxMarkAmount {
			return false
		}
		last = int64(m[0])
	}
	return true
}

// openMarks reads a state's marks and returns the state as a narrow one under these numbers.
func (p *Params) openMarks(m *marks, s State, words []uint64, now int64, known *Known) State {
	n := markCount(words)
	if n > 0 {
		s.Value = words[0]
	}
	if s.ExpiresAt <= now {
		return s
	}
	m.n = n
	for i := range n {
		w := words[markHeader+markWords*i:]
		m.all[i] = mark{int64(w[0]), int64(w[1]), int64(w[2])}
	}
	if s.Shape != p.shape {
		s = p.convertBucket(s, m, now, known)
	}
	return s
}

// save writes the marks, as many as there is room for, and the value of their state.
func (m *marks) save(s State, words []uint64) {
	if len(words) < markHeader {
		return
	}
	m.fold(markRoom(words))
	words[0], words[1] = s.Value, uint64(m.n)
	for i, k := range m.all[:m.n] {
		w := words[markHeader+markWords*i:]
		w[0], w[1], w[2] = uint64(k.time), uint64(k.low), uint64(k.out)
	}
}

// see lowers the marks to the backlog before it changes. A queue that was a bucket before does not use marks.
func (p *Params) see(m *marks, s State, now int64) {
	if p.Queue {
		m.n = 0
		return
	}
	backlog := p.backlog(s, now)
	for i := range m.n {
		k := &m.all[i]
		if k.time < now {
			k.low = min(k.low, backlog)
		}
		if k.time < now-markTTL {
			k.out = 0
		}
	}
	m.tidy()
}

// tidy deletes the marks that allow no refund.
func (m *marks) tidy() {
	n := 0
	for _, k := range m.all[:m.n] {
		switch {
		case k.low <= 0 || k.out <= 0:
		case n > 0 && m.all[n-1].low >= k.low:
			m.all[n-1].out = addOut(m.all[n-1].out, k.out)
		default:
			m.all[n] = k
			n++
		}
	}
	m.n = n
}

// atMost lowers every mark to a future backlog.
func (m *marks) atMost(low int64) {
	for i := range m.n {
		m.all[i].low = min(m.all[i].low, low)
	}
	m.tidy()
}

// add adds a mark for a reservation at a time, after which the backlog was low.
func (m *marks) add(at, low, out int64) {
	switch i := m.find(at); {
	case m.n > 0 && m.all[m.n-1].time == at:
		last := &m.all[m.n-1]
		last.low, last.out = low, addOut(last.out, out)
	case i == m.n-1: // after the last mark, or the first mark
		m.all[m.n] = mark{at, low, out}
		m.n++
	case i >= 0:
		m.all[i].out = addOut(m.all[i].out, out)
	}
	m.fold(MaxMarks)
}

// find returns the last mark that is not after a time, or -1.
func (m *marks) find(at int64) int {
	i := m.n - 1
	for i >= 0 && m.all[i].time > at {
		i--
	}
	return i
}

// fold merges marks until at most most remain. Each is merged into the previous one where that costs least: takes of
// the merged mark can then be refunded less.
func (m *marks) fold(most int) {
	for m.n > most {
		if m.n == 1 {
			m.n = 0
			return
		}
		least, best := 0.0, 0
		for i := 1; i < m.n; i++ {
			// In floating point, so that Lua chooses the same mark.
			cost := float64(m.all[i].low-m.all[i-1].low) * float64(m.all[i].out)
			if best == 0 || cost < least {
				least, best = cost, i
			}
		}
		m.all[best-1].out = addOut(m.all[best-1].out, m.all[best].out)
		copy(m.all[best:m.n-1], m.all[best+1:m.n])
		m.n--
	}
}

func addOut(a, b int64) int64 { return min(a+min(b, maxMarkAmount), maxMarkAmount) }

// takeMarked is Take for a bucket whose words have room for marks. Marks do not affect the decision.
func (p *Params) takeMarked(s State, words []uint64, now int64, r Request) (State, Answer) {
	was := s
	var m marks
	s = p.openMarks(&m, s, words, now, r.Known)
	next, a := p.Take(s, nil, now, r)
	if r.DryRun {
		return was, a
	}
	if r.Cost > 0 && (a.Allowed || r.Charge) {
		p.see(&m, s, now)
	}
	if r.Cost > 0 && a.Allowed && !p.Queue {
		p.marked(&m, next, now, r, &a)
	}
	if next.ExpiresAt <= now {
		m.n = 0
	}
	m.save(next, words)
	return next, a
}

// marked updates the marks after an allowed take.
func (p *Params) marked(m *marks, next State, now int64, r Request, a *Answer) {
	fill, cost := p.Burst, a.Granted
	if p.Kind == Bucket {
		var part uint64
		fill = p.fillQ
		if cost, part = p.dripTime(a.Granted); part > 0 {
			cost++
		}
	}
	if a.Delay > 0 { // the backlog will be this low just before its place
		low := fill - cost
		if p.Kind == Bucket {
			low = p.beforePlace(a.Granted)
		}
		m.atMost(max(0, low))
	}
	if r.Settles {
		m.add(a.At, min(p.backlog(next, now), fill, maxMarkAmount), cost)
	}
}

// beforePlace returns the backlog just before a place that was taken ahead of time, rounded down.
func (p *Params) beforePlace(cost int64) int64 {
	q, f := p.dripTime(cost)
	return span{p.fillQ, p.fillR}.minus(p, span{q, f}).q
}

// backlog returns the amount missing from the bucket in the unit of marks.
func (p *Params) backlog(s State, now int64) int64 {
	if p.Kind == Interval {
		deficit, _ := p.interval(s, now)
		return min(deficit, maxMarkAmount)
	}
	return p.ahead(s, now).q
}

// settleMarked refunds the unused part of a bucket's take, or charges the excess, and returns the amount.
func (p *Params) settleMarked(s State, words []uint64, now, at int64, x Settlement) (State, int64) {
	var m marks
	s = p.openMarks(&m, s, words, now, x.Known)
	p.see(&m, s, now)
	i := -1
	if x.Settles {
		if i = m.find(at); i >= 0 {
			m.all[i].out -= p.Share(x).Out
		}
	}
	var given int64
	switch {
	case p.Kind == Interval:
		s, given = p.settleInterval(s, &m, i, now, at, x)
	case p.Queue:
		s, given = p.settleQueue(s, now, at, x)
	default:
		s, given = p.settleBucket(s, &m, i, now, at, x)
	}
	m.tidy()
	if s.ExpiresAt <= now {
		m.n = 0
	}
	m.save(s, words)
	return s, given
}

// lower records a refund by mark i, after which rest is left of its low. Earlier marks cannot refund more than rest.
// Later ones are never lower than it.
func (m *marks) lower(i int, rest int64, later func(low int64) int64) {
	for j := range m.n {
		if k := &m.all[j]; j <= i {
			k.low = min(k.low, rest)
		} else {
			k.low = later(k.low)
		}
	}
}

// Share is a settlement in the unit of a bucket.
type Share struct {
	Want  int64  // amount to refund, for a Bucket in whole microseconds
	WantR uint64 // Bucket: plus 1/den microseconds
	Out   int64  // settled part of the mark's out
}

// Share converts a settlement to the unit of a bucket. If the limit has changed since the charge, it converts the
// fraction of the limit.
func (p *Params) Share(x Settlement) Share {
	charged, back := x.charged(), max(0, -x.Delta)
	if x.Of != 0 && x.Of != p.limit {
		charged, back = min(charged, x.Of), min(back, x.Of)
		fill, up := p.Burst, p.Burst
		if p.Kind == Bucket {
			fill, up = p.fillQ, p.fillQ
			if p.fillR > 0 {
				up++
			}
		}
		want, _ := mulDiv(uint64(back), uint64(fill), uint64(x.Of))
		out, rest := mulDiv(uint64(charged), uint64(up), uint64(x.Of))
		if rest > 0 {
			out++
		}
		return Share{Want: int64(want), Out: min(int64(out), maxMarkAmount)}
	}
	if p.Kind == Interval {
		return Share{Want: back, Out: min(charged, maxMarkAmount)}
	}
	var s Share
	s.Want, s.WantR = p.dripTime(back)
	out, part := p.dripTime(charged)
	if part > 0 {
		out++
	}
	s.Out = out
	return s
}

func (x *Settlement) charged() int64 {
	if x.Charged > 0 {
		return x.Charged
	}
	return max(x.Delta, -x.Delta)
}
