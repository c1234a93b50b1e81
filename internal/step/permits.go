package step

// Permits limit the requests in flight. They are stored in the ring of a log: an entry per take, with its cost and the
// time at which it was acquired or last renewed, which is its receipt. An entry that has not been renewed for Length,
// the TTL, is free, because its holder has crashed. Entries are never merged, and no two takes of a key have the same
// time, so that releasing a permit twice frees nothing else.
//
// The newest receipt is kept even when all permits are free: it is ExpiresAt - TTL. New receipts are later than it,
// also for callers whose clocks are behind.

// permitLog is the ring as of a time.
type permitLog struct {
	log
	newest int64 // the last receipt
}

func (p *Params) permits(s State, words []uint64, now int64) permitLog {
	if s.ExpiresAt <= now {
		return permitLog{log{words: words}, now - 1}
	}
	l := permitLog{openLog(words), s.ExpiresAt - p.Length}
	l.prune(p, now)
	return l
}

// convertPermits converts a ring that was written under another TTL: each permit gets the new TTL.
func (p *Params) convertPermits(words []uint64, now int64) State {
	l := openLog(words)
	if l.len == 0 {
		return State{}
	}
	newest := entryTime(*l.entry(l.len - 1), now)
	if newest+p.Length <= now {
		return State{}
	}
	return State{ExpiresAt: newest + p.Length, Shape: p.shape}
}

// ends returns the time until the last permit is free if none is renewed.
func (l *permitLog) ends(p *Params, now int64) int64 {
	if l.len == 0 {
		return 0
	}
	return entryTime(*l.entry(l.len - 1), now) + p.Length - now
}

// add acquires a permit and returns its receipt.
func (l *permitLog) add(p *Params, now, cost int64) (State, int64) {
	l.newest = l.push(max(now, l.newest+1), cost)
	return State{ExpiresAt: l.newest + p.Length, Shape: p.shape}, l.newest
}

func (p *Params) takePermits(s State, words []uint64, now int64, r Request) (State, Answer) {
	l := p.permits(s, words, now)
	a := Answer{ResetAfter: l.ends(p, now), At: now}
	if !l.admit(p, now, r.Cost, &a) || r.DryRun {
		return s, a
	}
	s, a.At = l.add(p, now, r.Cost)
	a.ResetAfter = s.ExpiresAt - now
	return s, a
}

// adjustPermits releases or renews a permit.
func (p *Params) adjustPermits(s State, words []uint64, now, at int64, x Settlement) (State, Answer) {
	delta := x.Delta
	if x.Settles { // released whole, whatever the actual cost
		delta = -costMost
	}
	l := p.permits(s, words, now)
	i := l.find(at, now)
	if i < 0 && delta > 0 {
		return p.takePermits(s, words, now, Request{Cost: delta})
	}
	a := Answer{Allowed: true, At: at}
	if i >= 0 {
		e := l.entry(i)
		cost := entryCost(*e)
		if delta < 0 {
			a.Granted = -min(cost, -delta)
			*e += uint64(a.Granted) // reduces its cost, which stays positive or becomes zero
			l.sum += a.Granted
			cost += a.Granted
		}
		if delta > 0 || cost == 0 {
			l.cut(i)
		}
		if delta > 0 {
			l.sum -= cost
			s, a.At = l.add(p, now, cost)
		}
		l.save()
	}
	a.Remaining, a.ResetAfter = max(0, p.Count-l.sum), l.ends(p, now)
	return s, a
}

// find returns the index of the entry with a receipt, or -1.
func (l *permitLog) find(at, now int64) int {
	low, high := 0, l.len
	for low < high {
		middle := (low + high) / 2
		if entryTime(*l.entry(middle), now) < at {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low < l.len && entryTime(*l.entry(low), now) == at {
		return low
	}
	return -1
}

// cut removes an entry and closes the gap from the nearer end.
func (l *permitLog) cut(i int) {
	if i >= l.len/2 {
		l.remove(i)
		return
	}
	for ; i > 0; i-- {
		*l.entry(i) = *l.entry(i - 1)
	}
	l.len--
	if l.head++; l.head >= l.cap() {
		l.head = 0
	}
}
