package table

import "github.com/sluiceproject/sluice/internal/step"

// MaxBatch is how many plain takes FastBatch takes at once.
const MaxBatch = 8

// FastTake is one of several plain takes, and its answer.
type FastTake struct {
	Hash   Hash
	Params *step.Params
	Cost   int64
	Shadow bool

	Allowed   bool
	Charged   bool
	Fresh     int64 // when the key is as if never seen
	Retry     int64
	Remaining int64

	slot  *slot
	value uint64
}

// FastBatch applies several plain takes the way Apply does, all or nothing, but the shortest way there is. If
// anything about them is unusual it does nothing and says so.
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
			return false // two in one segment: perhaps on one key
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
		if veto { // it would have passed; say what there is without it
			k.Remaining += k.Cost
			k.Fresh = max(now, s.expiresAt())
			continue
		}
		s.set(step.State{ExpiresAt: k.Fresh, Value: k.value, Shape: k.Params.Shape()})
		k.Charged = true
	}
	return true
}
