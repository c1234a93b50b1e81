package step

// The sliding log keeps the time and cost of every request of the last window, in a ring of words: a header and one
// word per entry. An entry holds its time modulo 2^50 microseconds (35 years, enough to know which it is) and its
// cost. Entries are in order of time; requests of one microsecond may share one.

const (
	costBits  = 14
	costMost  = 1<<costBits - 1
	timeBits  = 64 - costBits
	timeMask  = 1<<timeBits - 1
	logHeader = 1
)

// Words is how many words of wide state a take needs at now, at least: 0 for narrow kinds. A store that cannot give
// a log that many gives it what it has; the log then merges entries, which counts them for longer than they last and
// never for less.
//
// A bucket has none unless marks are kept for takes that will be settled; with settles there is to be room for one more.
func (p *Params) Words(s State, words []uint64, now int64, settles bool) int {
	switch p.Kind {
	case Slices:
		return int(p.Slices) + 1
	case Log, Permits:
		if len(words) == 0 || s.ExpiresAt <= now {
			return logHeader + 2
		}
		l := openLog(words)
		l.prune(p, now)
		return logHeader + min(l.len+1, MaxLogCount)
	}
	if settles && p.keepsMarks() {
		n := 0
		if s.ExpiresAt > now {
			n = markCount(words)
		}
		return markHeader + markWords*min(n+1, MaxMarks)
	}
	return 0
}

// GrowWords moves a wide state to a larger place.
func (p *Params) GrowWords(from, to []uint64) {
	if p.Kind != Log && p.Kind != Permits {
		copy(to, from)
		return
	}
	l := openLog(from)
	for i := range l.len {
		to[logHeader+i] = *l.entry(i)
	}
	grown := log{words: to, len: l.len, sum: l.sum}
	grown.save()
}

type log struct {
	words     []uint64
	head, len int
	sum       int64
}

func openLog(words []uint64) log {
	h := words[0]
	return log{words: words, head: int(h & 0xFFFF), len: int(h >> 16 & 0xFFFF), sum: int64(h >> 32)}
}

func (l *log) save() { l.words[0] = uint64(l.head) | uint64(l.len)<<16 | uint64(l.sum)<<32 }

func (l *log) cap() int { return len(l.words) - logHeader }

func (l *log) entry(i int) *uint64 {
	i += l.head
	if i >= l.cap() {
		i -= l.cap()
	}
	return &l.words[logHeader+i]
}

func entryCost(e uint64) int64 { return int64(e & costMost) }

// entryTime recovers the whole time of an entry, which lies within half of 2^50 microseconds of now.
func entryTime(e uint64, now int64) int64 {
	diff := int64(uint64(now)-e>>costBits) << costBits >> costBits // sign-extended difference modulo 2^50
	return now - diff
}

// prune drops entries that have left the window.
func (l *log) prune(p *Params, now int64) {
	for l.len > 0 && entryTime(*l.entry(0), now) <= now-p.Length {
		l.drop()
	}
}

func (l *log) drop() {
	l.sum -= entryCost(*l.entry(0))
	l.len--
	l.head++
	if l.head >= l.cap() {
		l.head = 0
	}
}

// remove closes the gap that an entry without cost leaves.
func (l *log) remove(i int) {
	for ; i < l.len-1; i++ {
		*l.entry(i) = *l.entry(i + 1)
	}
	l.len--
}

// push appends an entry; a full ring, or one whose last entry is of the same time, merges it into the last.
func (l *log) push(now, cost int64) (at int64) {
	at = now
	if l.len > 0 {
		last := l.entry(l.len - 1)
		at = max(at, entryTime(*last, now))
		old := entryCost(*last)
		if (l.len == l.cap() || at == entryTime(*last, now)) && old+cost <= costMost {
			*last = uint64(at)&timeMask<<costBits | uint64(old+cost)
			l.sum += cost
			l.save()
			return at
		}
		if l.len == l.cap() { // no room, and the last entry can hold no more: it is all but the whole limit
			*last = uint64(at)&timeMask<<costBits | costMost
			l.sum += costMost - old
			l.save()
			return at
		}
	}
	l.len++
	*l.entry(l.len - 1) = uint64(at)&timeMask<<costBits | uint64(cost)
	l.sum += cost
	l.save()
	return at
}

func (p *Params) putLog(l *log, now int64) State {
	if l.len == 0 {
		return State{}
	}
	return State{ExpiresAt: entryTime(*l.entry(l.len - 1), now) + p.Length, Shape: p.shape}
}

func (p *Params) takeLog(s State, words []uint64, now int64, r Request) (State, Answer) {
	l := p.log(s, words, now)
	a := Answer{Remaining: max(0, p.Count-l.sum), ResetAfter: max(0, s.ExpiresAt-now), At: now}
	if r.Cost > p.Count {
		a.Never = true
		return s, a
	}
	if over := l.sum + r.Cost - p.Count; over > 0 {
		for i := 0; over > 0; i++ { // the entry whose leaving makes room
			e := *l.entry(i)
			over -= entryCost(e)
			a.RetryAfter = entryTime(e, now) + p.Length - now
		}
		return s, a
	}
	a.Allowed, a.Granted = true, r.Cost
	a.Remaining -= r.Cost
	if r.DryRun {
		return s, a
	}
	a.At = l.push(now, r.Cost)
	s = p.putLog(&l, now)
	a.ResetAfter = s.ExpiresAt - now
	return s, a
}

// log opens the ring as it is at now. It is saved only with a new entry: a clock that is behind the one that pruned it
// would miss what was dropped, but no clock is behind the last entry. A fresh state means an empty ring, whatever the
// words hold.
func (p *Params) log(s State, words []uint64, now int64) log {
	if s.ExpiresAt <= now {
		return log{words: words}
	}
	l := openLog(words)
	l.prune(p, now)
	return l
}

// chargeLog records a refused request as the classic description does. Entries that no decision could need, because
// younger ones fill the limit by themselves, are dropped: the log never outgrows the limit.
func (p *Params) chargeLog(s State, words []uint64, now, cost int64) State {
	l := p.log(s, words, now)
	cost = min(cost, p.Count)
	at := now
	if l.len > 0 { // a stale clock must not put the refused one in place of a younger that was granted
		at = max(at, entryTime(*l.entry(l.len - 1), now))
	}
	for l.len > 0 && l.sum+cost-entryCost(*l.entry(0)) >= p.Count {
		l.drop()
	}
	l.save()
	l.push(at, cost)
	return p.putLog(&l, now)
}

func (p *Params) adjustLog(s State, words []uint64, now, at, delta int64) (State, int64) {
	l := p.log(s, words, now)
	if delta > 0 {
		before := l.sum
		l.push(now, min(delta, costMost))
		return p.putLog(&l, now), l.sum - before
	}
	i := l.len
	for i > 0 && entryTime(*l.entry(i - 1), now) >= at {
		i--
	}
	if i == l.len || entryTime(*l.entry(i), now) != at {
		return s, 0 // the entry has left, or was merged into a younger one
	}
	e := l.entry(i)
	old := entryCost(*e)
	cost := max(0, old+delta)
	*e = *e&^costMost | uint64(cost)
	l.sum += cost - old
	if cost == 0 { // or taking and giving back would make the log outgrow the limit
		l.remove(i)
	}
	l.save()
	return p.putLog(&l, now), cost - old
}
