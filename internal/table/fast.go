package table

import "github.com/sluiceproject/sluice/internal/step"

// Fast applies a cost on the shortest path if the key is in the table and the case is common. Otherwise it does nothing
// and returns step.Undecided as retry.
func (t *Table) Fast(h Hash, p *step.Params, now, cost int64) (fresh, retry, remaining int64) {
	seg := &t.segments[h.segment()]
	tag, extra := h.tagFor(p.Identity()), h.extra()
	if p.HasFastCounter() {
		return seg.fastCounter(tag, extra, p, now, cost)
	}
	seg.mu.Lock()
	s := seg.lookup(tag, extra)
	if s == nil || seg.rare != nil || s.word&wideFlag != 0 {
		seg.mu.Unlock()
		return 0, step.Undecided, 0
	}
	if uint8(s.word>>shapeShift) != p.Shape() { // also for an expired state, because Take registers the numbers of the shape it writes
		seg.mu.Unlock()
		return 0, step.Undecided, 0
	}
	if p.HasFastBucket() { // inlined: a call would cost as much as the calculation
		after, room := p.FastBucket(s.expiresAt(), now, cost)
		if room >= 0 {
			s.word = uint64(after) | extra | uint64(p.Shape())<<shapeShift
			s.value = 0
			seg.mu.Unlock()
			return after, step.Fits, p.FastUnits(room)
		}
	}
	fresh, retry, remaining = s.fast(p, extra, now, cost)
	seg.mu.Unlock()
	return fresh, retry, remaining
}

// fastCounter is Fast for a sliding counter.
//
// It computes all that depends only on the time before it looks up the slot. The rest is short, and it does not branch
// on whether the window has passed since the last take, so that the processor can proceed to the next key while it
// waits for memory.
func (seg *segment) fastCounter(tag, extra uint64, p *step.Params, now, cost int64) (fresh, retry, remaining int64) {
	fresh, weight := p.CounterAt(now)
	word := uint64(fresh) | extra | uint64(p.Shape())<<shapeShift
	seg.mu.Lock()
	s := seg.lookup(tag, extra)
	if s == nil || seg.rare != nil {
		seg.mu.Unlock()
		return 0, step.Undecided, 0
	}
	age := word - s.word
	passed := uint64(one(age != 0))
	if age == passed*uint64(p.Length) { // written in the current or the previous window, under this limit
		after, left := p.FastCounter(s.value, passed, weight, cost)
		if left >= 0 {
			s.word = word
			s.value = after
			seg.mu.Unlock()
			return fresh, step.Fits, left
		}
	}
	fresh, retry, remaining = s.fast(p, extra, now, cost)
	seg.mu.Unlock()
	return fresh, retry, remaining
}

// fast applies a cost to the slot if the case is common.
func (s *slot) fast(p *step.Params, extra uint64, now, cost int64) (fresh, retry, remaining int64) {
	fresh, value, retry, remaining := p.Fast(s.expiresAt(), s.value, uint8(s.word>>shapeShift), now, cost)
	if retry == step.Fits {
		s.word = uint64(fresh) | extra | uint64(p.Shape())<<shapeShift
		s.value = value
	}
	return fresh, retry, remaining
}

// MaxBatch is the maximum number of takes of FastBatch.
const MaxBatch = 8

// FastTake is one take of FastBatch, and its decision.
type FastTake struct {
	Hash   Hash
	Params *step.Params
	Cost   int64
	Shadow bool

	Allowed   bool
	Charged   bool
	Fresh     int64 // time at which the key is fully reset
	Retry     int64
	Remaining int64

	slot  *slot
	value uint64
}

// FastBatch applies several common takes like Apply, all or nothing, but on the shortest path. If any case is not
// common it does nothing. It reports whether it applied the takes.
func (t *Table) FastBatch(takes []FastTake, now int64) bool {
	var order [MaxBatch]uint16
	n := 0
	for i := range takes {
		s := uint16(takes[i].Hash.segment())
		at := n
		for at > 0 && order[at-1] > s {
			at--
		}
		if at > 0 && order[at-1] == s {
			return false // two takes in one segment, perhaps of one key
		}
		copy(order[at+1:n+1], order[at:n])
		order[at] = s
		n++
	}
	for _, s := range order[:n] {
		t.segments[s].mu.Lock()
	}
	ok := t.fastBatch(takes, now)
	for _, s := range order[:n] {
		t.segments[s].mu.Unlock()
	}
	return ok
}

func (t *Table) fastBatch(takes []FastTake, now int64) bool {
	veto := false
	for i := range takes {
		k := &takes[i]
		seg := &t.segments[k.Hash.segment()]
		s := seg.lookup(k.Hash.tagFor(k.Params.Identity()), k.Hash.extra())
		if s == nil || seg.rare != nil || s.word&wideFlag != 0 || uint8(s.word>>shapeShift) != k.Params.Shape() {
			return false
		}
		k.slot = s
		k.Fresh, k.value, k.Retry, k.Remaining = k.Params.Fast(s.expiresAt(), s.value, uint8(s.word>>shapeShift), now, k.Cost)
		if k.Retry == step.Undecided {
			return false
		}
		k.Allowed = k.Retry == step.Fits
		veto = veto || !k.Allowed && !k.Shadow
	}
	for i := range takes {
		k := &takes[i]
		if !k.Allowed {
			continue
		}
		s := k.slot
		if veto { // within its limit, but not charged: return the state without it
			k.Remaining += k.Cost
			k.Fresh = max(now, s.expiresAt())
			continue
		}
		s.set(step.State{ExpiresAt: k.Fresh, Value: k.value, Shape: k.Params.Shape()})
		k.Charged = true
	}
	return true
}
