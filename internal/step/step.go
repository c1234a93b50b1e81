// Package step contains Sluice's algorithms as pure integer functions: they take a state, the time and a cost, and
// return a state and a decision. They have no clock, no I/O and no locks; stores provide those. Redis runs the same
// algorithms in Lua, and a differential test keeps the two equal, so everything here must be expressible in a few lines
// of Lua.
//
// # Time
//
// Times are microseconds since the Unix epoch and durations are microseconds. Time never runs backwards for a key: a
// caller with a stale clock is granted nothing that a caller with the right time would not be.
//
// # Exactness
//
// Nothing is rounded in the caller's favour. A bucket's state is a time with a fraction whose denominator is chosen so
// that N per window is exact for every N and window. Windows count. The sliding counter rounds the weight of the
// previous window up to a multiple of 1/65,536. A reference in rational arithmetic agrees with every decision (see the
// tests).
//
// # State
//
// A narrow state is a [State]: the microsecond at which it is fully reset, a value whose meaning depends on the
// algorithm, and a shape. ExpiresAt means the same for all algorithms, so that a table can expire and evict keys
// without their rules. The sliding log and the counter with sub-windows need more space, a slice of words that the
// store owns; see [Params.Words].
package step

// State is the stored state of one key. The zero State is that of a new key.
type State struct {
	ExpiresAt int64  // from this microsecond on, the state equals the zero State
	Value     uint64 // meaning depends on Kind
	Shape     uint8  // Params.shape of the limit that wrote Value
}

// Request is one attempt to charge a cost.
type Request struct {
	Cost     int64  // 0 peeks: nothing is charged
	Min      int64  // if positive, a grant from Min to Cost is accepted: what remains, or Min if that is allowed otherwise, such as with a delay
	MaxDelay int64  // accept a place up to this much later; a Queue without it accepts any place it has
	Charge   bool   // charge a denied request too
	DryRun   bool   // decide, change nothing
	Begin    bool   // create the bucket of a new key even if nothing is charged; see Params.HasInitial
	Settles  bool   // it will be settled: a bucket keeps a mark for it
	Known    *Known // meaning of the rule's other shapes
}

// Settlement replaces the charge of an earlier take with its actual cost.
type Settlement struct {
	At      int64  // Answer.At of the take
	Delta   int64  // actual cost − charged cost
	Charged int64  // charged cost; 0 if unknown: then it is taken to be |Delta|
	Of      int64  // Limit when it was charged; 0 if unchanged
	Settles bool   // the take had Settles
	Known   *Known // meaning of the rule's other shapes
}

// Answer is the decision about one Request.
type Answer struct {
	Allowed    bool
	Never      bool  // the cost exceeds the limit and can never be allowed
	Blocked    bool  // denied because the key is blocked; set by stores
	Granted    int64 // charged cost; negative for a refund
	Remaining  int64 // maximum cost that would be allowed now without MaxDelay
	RetryAfter int64 // if denied: time until the same request would be allowed, perhaps with a Delay, if no others came
	ResetAfter int64 // time until the key is fully reset; with HasInitial, until the bucket is full
	Delay      int64 // if allowed: time to wait before proceeding
	At         int64 // time from which the take counts; its receipt for Adjust
}

// Words returns the minimum number of words of wide state that a take needs at now: 0 for narrow kinds. A store that
// cannot provide as many for a log passes as many as it has. The log then merges entries, which counts them for longer
// than their window and never for less.
//
// A bucket has words only for the marks of takes that will be settled. With settles there is room for one more mark.
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

// Wide reports whether the words are part of the state. Those of a bucket are while they contain a mark.
func (p *Params) Wide(words []uint64) bool {
	if p.Kind == Bucket || p.Kind == Interval {
		return markCount(words) > 0
	}
	return len(words) > 0
}

// markCount returns the number of marks in a bucket's words.
func markCount(words []uint64) int {
	if len(words) < markHeader {
		return 0
	}
	return int(min(words[1], uint64(markRoom(words))))
}

// GrowWords copies a wide state to a larger slice.
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

// Take decides one request and returns the state to store, whether it is allowed or denied. words are the wide part of
// the state, at least [Params.Words] long, and are changed in place. They are nil for narrow kinds, and for a bucket
// without marks whose take needs none. [Params.Wide] reports whether a bucket still needs them afterwards.
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

// refuse handles a request that is not allowed in full: it grants a part, or charges the denied request.
func (p *Params) refuse(s State, words []uint64, now int64, r Request, a Answer) (State, Answer) {
	rest := r
	if r.Min > 0 {
		rest.Cost, rest.Min = max(min(a.Remaining, r.Cost), r.Min), 0 // Min, unless only the delay is too long
		var next State
		if next, a = p.take(s, words, now, rest); a.Allowed {
			return next, a
		}
	}
	if r.Charge && !r.DryRun {
		s = p.charge(s, words, now, r.Cost)
		a.Granted, a.At = 0, now
		a.Remaining, a.ResetAfter = p.look(s, words, now)
		// The charge for the denial may delay the time at which a retry succeeds.
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

// peek returns the decision about a cost of 1 and the remaining quota. It changes nothing.
func (p *Params) peek(s State, words []uint64, now int64, r Request) Answer {
	_, a := p.take(s, words, now, Request{Cost: 1, MaxDelay: r.MaxDelay, DryRun: true})
	a.Granted = 0
	a.Remaining, a.ResetAfter = p.look(s, words, now)
	return a
}

// look returns the remaining quota and the time until the key is fully reset.
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

// charge charges the cost of a denied request. It empties a bucket at most, so that a flood of denied requests keeps a
// caller out for one refill and no longer. Windows keep counting, up to their maximum.
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
	case Permits: // denied requests hold no permit
		return s
	default:
		return p.chargeLog(s, words, now, cost)
	}
}

// Adjust settles an earlier take, identified by the At of its decision. Delta is the actual cost minus the charged
// cost.
//
// A negative Delta is a refund. It never leaves more quota than if the take had cost less from the start: a bucket uses
// the take's mark, or without Settles the part that the take itself proves has not expired. A place in a queue is
// refunded only if there are no places behind it. Windows, counters and logs refund where the take was counted, if it
// still is. A positive Delta is charged now, because it was used by now at the latest. It may make the balance
// negative, for a bucket down to [Params.Cap].
//
// For a concurrency limit a settlement releases the permit whole, and a negative Delta without Settles releases a part.
// A positive Delta renews the permit, and At of the decision is its new receipt. A permit that has expired is acquired
// again if there is room.
func (p *Params) Adjust(s State, words []uint64, now int64, x Settlement) (State, Answer) {
	at := max(now-maxAhead, min(x.At, now+maxAhead)) // the receipt of no take is outside of this range, which prevents overflow
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
