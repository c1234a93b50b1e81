// Package step holds Sluice's algorithms as pure integer functions: a state, the time and a cost go in, a state and
// an answer come out. There is no clock, no I/O and no lock here; stores bring those. Redis runs the same algorithms
// in Lua, and a differential test keeps the two equal, so everything here must be sayable in a few Lua lines.
//
// # Time
//
// Times are microseconds since the Unix epoch and durations are microseconds. Time never runs backwards for a key: a
// caller with a stale clock finds the state as it is and is granted nothing that a caller on time would not be.
//
// # Exactness
//
// Nothing is rounded in the caller's favour. A bucket's state is a time with a fraction whose denominator is chosen
// so that N per window is exact for every N and window; windows count; the sliding counter quantises the weight of
// the window before to 1/65,536, upwards. A reference in rational arithmetic agrees with every decision (see the
// tests).
//
// # State
//
// A narrow state is a [State]: the microsecond at which it equals that of a key never seen, a value whose meaning
// belongs to the algorithm, and a shape. Because ExpiresAt means the same for all algorithms, a table can expire and
// evict keys knowing nothing of rules. The sliding log and the counter with sub-windows need more room and keep it in
// a slice of words that the store owns; see [Params.Words].
package step

// State is what a store keeps for one key. The zero State is that of a key never seen.
type State struct {
	ExpiresAt int64  // from this microsecond on, the state equals the zero State
	Value     uint64 // meaning depends on Kind
	Shape     uint8  // Params.shape of the limit that wrote Value
}

// Request is one attempt to spend.
type Request struct {
	Cost     int64  // 0 peeks: nothing is spent
	Min      int64  // if positive, a grant of at least Min and at most Cost is accepted: what remains, or Min if that fits otherwise
	MaxDelay int64  // accept a place this much later; a Queue without it accepts any place it has
	Charge   bool   // charge a refused request too
	DryRun   bool   // decide, change nothing
	Begin    bool   // start the new bucket of a key without one, though nothing is spent; see Params.HasInitial
	Settles  bool   // it will be settled: a bucket keeps a mark for it
	Known    *Known // what other shapes of the rule's states mean
}

// Settlement says what an earlier take really cost.
type Settlement struct {
	At      int64  // Answer.At of the take
	Delta   int64  // what it really cost less what was charged
	Charged int64  // what was charged; 0 if that is not known: then nothing but Delta says how much it was
	Of      int64  // Limit when it was charged; 0 if it is still that
	Settles bool   // the take had Settles
	Known   *Known // what other shapes of the rule's states mean
}

// Answer is the outcome of one Request.
type Answer struct {
	Allowed    bool
	Never      bool  // the cost can never fit, however long one waits
	Blocked    bool  // denied because the key is blocked; stores set it
	Granted    int64 // what was spent; negative: what was given back
	Remaining  int64 // the largest cost that a request without MaxDelay could spend now
	RetryAfter int64 // when denied: the same request would be allowed this much later if no other came, perhaps with a Delay
	ResetAfter int64 // the key is as if never seen this much later; with HasInitial the bucket is full then
	Delay      int64 // when allowed: how long the caller must wait first
	At         int64 // when the take counts from; names it to Adjust
}

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

// Wide reports whether the words are part of the state: those of a bucket are while they hold a mark.
func (p *Params) Wide(words []uint64) bool {
	if p.Kind == Bucket || p.Kind == Interval {
		return markCount(words) > 0
	}
	return len(words) > 0
}

// markCount is how many marks the words hold, if they are those of a bucket.
func markCount(words []uint64) int {
	if len(words) < markHeader {
		return 0
	}
	return int(min(words[1], uint64(markRoom(words))))
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

// Take decides one request and returns the state to keep, whatever the answer. The words are the wide part of the
// state, at least [Params.Words] long, and are changed in place. They are nil for narrow kinds, and for a bucket without
// marks whose take needs none; whether a bucket's are still needed then [Params.Wide] reports.
func (p *Params) Take(s State, words []uint64, now int64, r Request) (State, Answer) {
	if len(words) > 0 && p.Kind <= Interval {
		return p.takeMarked(s, words, now, r)
	}
	was := s
	if s.Shape != p.shape && s.ExpiresAt > now {
		if r.DryRun {
			words = append([]uint64(nil), words...)
		}
		s = p.convertState(s, words, now, r.Known)
	}
	if p.HasInitial && (r.Cost > 0 || r.Begin) {
		s = p.begun(s, now)
	}
	next, a := s, Answer{}
	if r.Cost == 0 {
		a = p.peek(s, words, now, r)
	} else {
		next, a = p.take(s, words, now, r)
	}
	if !a.Allowed && r.Cost > 0 && (r.Min > 0 || r.Charge) {
		next, a = p.refuse(s, words, now, r, a)
	}
	if r.DryRun {
		return was, a
	}
	return next, a
}

// refuse does what a request asked for in case it does not fit as a whole: a part of it, or a charge all the same.
func (p *Params) refuse(s State, words []uint64, now int64, r Request, a Answer) (State, Answer) {
	rest := r
	if r.Min > 0 {
		rest.Cost, rest.Min = max(min(a.Remaining, r.Cost), r.Min), 0 // Min, unless only the wait is too long
		var next State
		if next, a = p.take(s, words, now, rest); a.Allowed {
			return next, a
		}
	}
	if r.Charge && !r.DryRun {
		s = p.charge(s, words, now, r.Cost)
		a.Granted, a.At = 0, now
		a.Remaining, a.ResetAfter = p.look(s, words, now)
		// The refusal's own charge may push back the moment at which a retry succeeds.
		if !a.Never {
			rest.DryRun = true
			_, again := p.take(s, words, now, rest)
			a.RetryAfter = again.RetryAfter
		}
	}
	return s, a
}

func (p *Params) take(s State, words []uint64, now int64, r Request) (State, Answer) {
	switch p.Kind {
	case Bucket:
		return p.takeBucket(s, now, r)
	case Interval:
		return p.takeInterval(s, now, r)
	case Window:
		return p.takeWindow(s, now, r)
	case Counter:
		return p.takeCounter(s, now, r)
	case Slices:
		return p.takeSlices(s, words, now, r)
	case Permits:
		return p.takePermits(s, words, now, r)
	default:
		return p.takeLog(s, words, now, r)
	}
}

// peek answers whether one unit would be allowed, and says what remains; it changes nothing.
func (p *Params) peek(s State, words []uint64, now int64, r Request) Answer {
	_, a := p.take(s, words, now, Request{Cost: 1, MaxDelay: r.MaxDelay, DryRun: true})
	a.Granted = 0
	a.Remaining, a.ResetAfter = p.look(s, words, now)
	return a
}

// look tells what remains and how long until the key is as if never seen.
func (p *Params) look(s State, words []uint64, now int64) (remaining, resetAfter int64) {
	switch p.Kind {
	case Bucket:
		full := p.fullAt(s, now)
		return p.remainingAt(full, now), full.at - now
	case Interval:
		deficit, _ := p.interval(s, now)
		remaining = max(0, p.Burst-deficit)
	case Window:
		w := p.window(s, now)
		if w.count == 0 {
			return p.limit, 0
		}
		return w.room(p, now), w.end - now
	case Counter:
		c := p.counter(s, now)
		remaining = max(0, p.Count-p.counterUsed(c, now))
	case Slices:
		var room ring
		at, ring := p.slicesCopy(s, words, now, &room)
		remaining = max(0, p.Count-p.slicesUsed(at, ring, now))
	case Permits:
		l := p.permits(s, words, now)
		return max(0, p.Count-l.sum), l.ends(p, now)
	default:
		l := p.log(s, words, now)
		remaining = max(0, p.Count-l.sum)
	}
	return remaining, max(0, s.ExpiresAt-now)
}

// charge books the cost of a refused request. A bucket is emptied at the most, so that a flood of refused requests
// keeps a caller out for one refill and no longer; windows count on, up to the most they can hold.
func (p *Params) charge(s State, words []uint64, now, cost int64) State {
	switch p.Kind {
	case Bucket:
		return p.chargeBucket(s, now, cost)
	case Interval:
		return p.chargeInterval(s, now, cost)
	case Window:
		w := p.window(s, now)
		return p.putWindow(w.add(p, now, cost))
	case Counter:
		c := p.counter(s, now)
		c.cur = saturate32(c.cur, cost)
		return p.putCounter(c)
	case Slices:
		return p.chargeSlices(s, words, now, cost)
	case Permits: // who was refused is not in flight
		return s
	default:
		return p.chargeLog(s, words, now, cost)
	}
}

// Adjust settles an earlier take, named by the At of its answer: Delta is what it really cost less what was charged.
//
// A negative Delta gives back, and never more than would be there had the take cost so much less: a bucket goes by the
// take's mark, or without Settles by what the take itself shows has not worn off. A place in a queue is given back only if
// nothing stands behind it; windows, counters and logs give back where the take was counted, if it still is. A positive
// Delta was used by now at the latest, so now is when it is charged, and it may go into debt, for a bucket up to
// [Params.Cap].
//
// A slot is given back whole by a settlement, and in part by a negative delta without Settles. A positive one renews it:
// the answer's At is its name from then on. One that is gone, because it was not renewed in time, is taken anew by that,
// if there is room.
func (p *Params) Adjust(s State, words []uint64, now int64, x Settlement) (State, Answer) {
	at := max(now-maxAhead, min(x.At, now+maxAhead)) // a time that no take can have had must not wrap around
	if p.Kind <= Interval {
		next, given := p.settleMarked(s, words, now, at, x)
		a := Answer{Allowed: true, Granted: given, At: x.At}
		a.Remaining, a.ResetAfter = p.look(next, nil, now)
		return next, a
	}
	if s.Shape != p.shape && s.ExpiresAt > now {
		s = p.convertState(s, words, now, x.Known)
	}
	if p.Kind == Permits {
		next, a := p.adjustPermits(s, words, now, at, x)
		if x.Delta <= 0 || x.Settles {
			a.At = x.At
		}
		return next, a
	}
	var given int64
	switch {
	case x.Delta == 0:
	case p.Kind == Window:
		s, given = p.adjustWindow(s, now, at, x.Delta)
	case p.Kind == Counter:
		s, given = p.adjustCounter(s, now, at, x.Delta)
	case p.Kind == Slices:
		s, given = p.adjustSlices(s, words, now, at, x.Delta)
	default:
		s, given = p.adjustLog(s, words, now, at, x.Delta)
	}
	a := Answer{Allowed: true, Granted: given, At: x.At}
	a.Remaining, a.ResetAfter = p.look(s, words, now)
	return s, a
}
