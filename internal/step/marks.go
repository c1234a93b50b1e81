package step

// A take that will be settled leaves a mark, so that what it did not need can be given back exactly.
//
// A bucket's backlog is what is missing from it. To have charged an earlier take less would leave a backlog that is smaller
// by that, or by the lowest the backlog has been since if that is less: from there on the bucket would have been full, and
// what flowed in would have been lost. So a mark keeps the lowest backlog since its time, and how much is reserved since
// then that is not settled. A take is given back what it did not need, at most the low of the last mark that is not after it.
//
// A key with marks is a wide state. Its words are its value, the number of marks, and time, low and out of each, oldest
// first. Low and out are whole microseconds for a bucket, low rounded down and out up, and units for an interval bucket.
// Without a mark left the state is a narrow one again, as that of a key on which nothing is ever settled.

const (
	// MaxMarks is how many marks a key keeps. One more is folded into the one before it, which lets it be given back less.
	MaxMarks = 32

	markHeader = 2
	markWords  = 3

	// markTTL is for how long a take can be given back by its mark.
	markTTL = 2 * 3600 * 1_000_000
	// maxMarkAmount bounds the amounts of a mark, so that Lua's numbers are exact for them.
	maxMarkAmount = 1 << 52
)

type mark struct {
	time int64
	low  int64 // the lowest backlog since
	out  int64 // what was reserved from this mark's time up to the next one's, and is not settled
}

type marks struct {
	n   int
	all [MaxMarks + 1]mark
}

// keepsMarks reports whether takes under this limit can leave marks. A place in a queue cannot: it is a promise to those
// behind it.
func (p *Params) keepsMarks() bool { return p.Kind == Bucket && !p.Queue || p.Kind == Interval }

// markRoom is how many marks the words have room for.
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

// openMarks reads a state's marks, and returns it as a narrow one of these numbers.
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

// save writes the marks, as many as there is room for, and the value of the state they belong to.
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

// see notes what the backlog is, before anything changes it. A queue that was a bucket before has no use for its marks.
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

// tidy drops the marks by which nothing can be given back.
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

// atMost lowers every mark to a backlog that will be.
func (m *marks) atMost(low int64) {
	for i := range m.n {
		m.all[i].low = min(m.all[i].low, low)
	}
	m.tidy()
}

// add leaves a mark for what was reserved at a time, after which the backlog was low.
func (m *marks) add(at, low, out int64) {
	switch i := m.find(at); {
	case m.n > 0 && m.all[m.n-1].time == at:
		last := &m.all[m.n-1]
		last.low, last.out = low, addOut(last.out, out)
	case i == m.n-1: // after the last, or the first there is
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

// fold leaves no more than most marks. Each too many becomes part of the one before it, where that costs least: those
// that it stood for can then be given back less.
func (m *marks) fold(most int) {
	for m.n > most {
		if m.n == 1 {
			m.n = 0
			return
		}
		least, best := 0.0, 0
		for i := 1; i < m.n; i++ {
			// In floating point, so that Lua chooses alike.
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

// takeMarked is Take for a bucket whose words have room for marks. Marks have no part in the decision.
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

// marked brings the marks up to date with a take that was admitted.
func (p *Params) marked(m *marks, next State, now int64, r Request, a *Answer) {
	fill, cost := p.Burst, a.Granted
	if p.Kind == Bucket {
		var part uint64
		fill = p.fillQ
		if cost, part = p.dripTime(a.Granted); part > 0 {
			cost++
		}
	}
	if a.Delay > 0 { // so low the backlog will be just before its place
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

// beforePlace is the backlog just before a place that was taken ahead of time, rounded down.
func (p *Params) beforePlace(cost int64) int64 {
	q, f := p.dripTime(cost)
	return span{p.fillQ, p.fillR}.minus(p, span{q, f}).q
}

// backlog is what is missing from the bucket, as marks have it.
func (p *Params) backlog(s State, now int64) int64 {
	if p.Kind == Interval {
		deficit, _ := p.interval(s, now)
		return min(deficit, maxMarkAmount)
	}
	return p.ahead(s, now).q
}

// settleMarked gives back or charges what a bucket's take did not need or needed on top, and says how much of it.
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

// lower notes that back was given back by mark i, whose low was low; rest is low less back. Of those before it none can
// give back more than rest. Those after it never lie lower.
func (m *marks) lower(i int, rest int64, later func(low int64) int64) {
	for j := range m.n {
		if k := &m.all[j]; j <= i {
			k.low = min(k.low, rest)
		} else {
			k.low = later(k.low)
		}
	}
}

// Share is a settlement in a bucket's own terms.
type Share struct {
	Want  int64  // what is to be given back, Bucket: in whole microseconds
	WantR uint64 // Bucket: and in 1/den microseconds
	Out   int64  // what of the mark's out is settled
}

// Share says a settlement in the terms of a bucket, of which so much was charged as a share of what it held then.
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
