package step

// The sliding log stores the time and cost of every request of the last window, in a ring of words: a header and one
// word per entry. An entry holds its time modulo 2^50 microseconds (35 years, enough to be unambiguous) and its cost.
// Entries are ordered by time; requests of one microsecond may share one.

const (
	costBits  = 14
	costMost  = 1<<costBits - 1
	timeBits  = 64 - costBits
	timeMask  = 1<<timeBits - 1
	logHeader = 1
)

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

// entryTime returns the full time of an entry, which is within 2^49 microseconds of now.
func entryTime(e uint64, now int64) int64 {
	diff := int64(uint64(now)-e>>costBits) << costBits >> costBits // sign-extended difference modulo 2^50
	return now - diff
}

// prune deletes entries that have left the window.
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

// remove closes the gap of an entry with cost 0.
func (l *log) remove(i int) {
	for ; i < l.len-1; i++ {
		*l.entry(i) = *l.entry(i + 1)
	}
	l.len--
}

// push appends an entry. A full ring, or one whose last entry has the same time, merges it into the last entry.
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
		if l.len == l.cap() { // no room, and the last entry cannot hold more: it is nearly the whole limit
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
	a := Answer{ResetAfter: max(0, s.ExpiresAt-now), At: now}
	if !l.admit(p, now, r.Cost, &a) || r.DryRun {
		return s, a
	}
	a.At = l.push(now, r.Cost)
	s = p.putLog(&l, now)
	a.ResetAfter = s.ExpiresAt - now
	return s, a
}

// admit reports whether cost fits next to the entries, and sets the decision a.
func (l *log) admit(p *Params, now, cost int64, a *Answer) bool {
	a.Remaining = max(0, p.Count-l.sum)
	if cost > p.Count {
		a.Never = true
		return false
	}
	over := l.sum + cost - p.Count
	if over <= 0 {
		a.Allowed, a.Granted = true, cost
		a.Remaining -= cost
		return true
	}
	for i := 0; over > 0; i++ { // find the entry whose expiry makes room
		e := *l.entry(i)
		over -= entryCost(e)
		a.RetryAfter = entryTime(e, now) + p.Length - now
	}
	return false
}

// log opens the ring as of now. It is saved only with a new entry: a clock behind the one that pruned it would miss the
// deleted entries, but no clock is behind the last entry. A fully reset state has an empty ring, whatever the words
// contain.
func (p *Params) log(s State, words []uint64, now int64) log {
	if s.ExpiresAt <= now {
		return log{words: words}
	}
	l := openLog(words)
	l.prune(p, now)
	return l
}

// chargeLog records a denied request, as in the classic description. Entries that no decision can need, because younger
// ones fill the limit, are deleted: the log never outgrows the limit.
func (p *Params) chargeLog(s State, words []uint64, now, cost int64) State {
	l := p.log(s, words, now)
	cost = min(cost, p.Count)
	at := now
	if l.len > 0 { // with a stale clock, the denied request must not replace a younger granted one
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
	if cost == 0 { // otherwise takes and refunds would make the log outgrow the limit
		l.remove(i)
	}
	l.save()
	return p.putLog(&l, now), cost - old
}
