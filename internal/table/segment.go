package table

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// Hash locates a key: two independent hashes of rule and key.
type Hash struct {
	tag  uint64
	spot uint64 // the segment and the extra bits
}

func (h Hash) segment() uint64 { return h.spot >> (64 - segmentBits) }

func (h Hash) extra() uint64 { return h.spot & 3 << freshBits }

// tagFor returns the tag of a kind of state: kinds that cannot be converted to each other do not share a slot.
func (h Hash) tagFor(identity uint64) uint64 {
	tag := h.tag ^ identity*0x9E3779B97F4A7C15
	if tag == 0 {
		return 1
	}
	return tag
}

// fold multiplies two words and folds the product: the building block of wyhash and similar hashes. With secret random
// operands the results for two different inputs are equal with a probability close to 2^-64.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// Hash hashes a rule and a key.
func (t *Table) Hash(rule group.RuleID, key string) Hash { return t.Locate(rule, key, nil) }

// Locate hashes a rule and a key and prefetches the memory of the key's slot, so that it is being loaded while the
// caller does something else, such as reading the clock.
//
// Both lanes of the hash process every byte with their own secrets, so that the two results are independent for keys of
// any length.
func (t *Table) Locate(rule group.RuleID, key string, p *step.Params) Hash {
	if reset := t.generations.all.Load(); reset != nil { // most tables have none
		rule = generation(*reset, rule)
	}
	s := &t.seed
	b := unsafe.Slice(unsafe.StringData(key), len(key))
	n := uint64(len(b))
	x := fold(rule.A^s[0], rule.B^s[1])
	y := x ^ s[3]
	for len(b) > 16 {
		v, w := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		x = fold(v^s[1], w^x)
		y = fold(v^s[2], w^y)
		b = b[16:]
	}
	var v, w uint64
	switch {
	case len(b) >= 8:
		v, w = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[len(b)-8:])
	case len(b) >= 4:
		v, w = uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[len(b)-4:]))
	case len(b) > 0:
		v = uint64(b[0])<<16 | uint64(b[len(b)>>1])<<8 | uint64(b[len(b)-1])
	}
	h := Hash{
		tag:  fold(fold(v^s[1], w^x)^s[0], n^s[2]),
		spot: fold(fold(v^s[2], w^y)^s[3], n^s[1]),
	}
	if p != nil {
		if homes := t.region.homeSlots[h.segment()].Load(); homes > 0 { // small segments are in the cache
			home, _ := bits.Mul64(h.tagFor(p.Identity()), uint64(homes))
			prefetch(unsafe.Pointer(&t.segments[h.segment()]), unsafe.Pointer(t.region.slots(h.segment(), 0).at(int(home))))
		}
	}
	return h
}

// withID returns the hash under which the idempotency ID of a request is stored. It is in the key's segment, and so
// guarded by its lock.
func (h Hash) withID(id uint64) Hash {
	return Hash{tag: fold(h.tag^id, 0xA0761D6478BD642F^bits.RotateLeft64(id, 32)), spot: h.spot ^ id&3}
}

type segment struct {
	mu        sync.Mutex // guards the fields below
	homeSlots uint32     // the slot of a tag is at or after tag*homeSlots/2^64
	live      uint32     // slots that are not empty
	limit     uint32     // make room when live reaches it
	slots     slots
	rare      *rareState // nil for most segments
	_         [16]byte
}

// rareState is state that few segments have.
type rareState struct {
	blocks []block // sorted by tag
}

// slots is the memory of a segment: contiguous on the heap for a small one, in the region in pages that are levelBytes
// apart.
type slots struct {
	base unsafe.Pointer
	len  int
}

// at returns slot i. Segments on the heap are smaller than a page.
func (s slots) at(i int) *slot {
	page := uint(i) / uint(slotsPerPage)
	return (*slot)(unsafe.Add(s.base, page*levelBytes+(uint(i)-page*uint(slotsPerPage))*uint(slotBytes)))
}

// run returns slot i and the number of contiguous slots from it on.
func (s slots) run(i int) (first *slot, n int) {
	page := uint(i) / uint(slotsPerPage)
	rest := uint(i) - page*uint(slotsPerPage)
	first = (*slot)(unsafe.Add(s.base, page*levelBytes+rest*uint(slotBytes)))
	return first, min(slotsPerPage-int(rest), s.len-i)
}

// slot is one key. An empty slot has tag 0.
type slot struct {
	tag   uint64
	word  uint64 // shape, wide flag, extra hash bits, and ExpiresAt
	value uint64 // of a narrow state; for a wide one, the ref of its words
}

const (
	freshBits  = 53
	freshMask  = 1<<freshBits - 1
	extraMask  = 3 << freshBits
	wideFlag   = 1 << (freshBits + 2)
	shapeShift = freshBits + 3
)

func (s *slot) expiresAt() int64 { return int64(s.word & freshMask) }

func (s *slot) state() step.State {
	return step.State{ExpiresAt: int64(s.word & freshMask), Value: s.value, Shape: uint8(s.word >> shapeShift)}
}

func (s *slot) set(st step.State) {
	s.word = s.word&(extraMask|wideFlag) | uint64(st.ExpiresAt) | uint64(st.Shape)<<shapeShift
	s.value = st.Value
}

// free clears the state, so that the next key can use the slot. Its words, if any, are freed then.
func (s *slot) free() {
	value := s.value
	s.set(step.State{})
	if s.word&wideFlag != 0 {
		s.value = value
	}
}

// find returns the index of the tag, or the index at which it would be inserted.
func (seg *segment) find(tag, extra uint64) (i int, ok bool) {
	home, _ := bits.Mul64(tag, uint64(seg.homeSlots))
	i = int(home)
	if i >= seg.slots.len { // there are no slots
		return i, false
	}
	if s := seg.slots.at(i); s.tag == tag && s.word&extraMask == extra {
		return i, true
	}
	return seg.search(i, tag, extra)
}

// reach is the number of slots that lookup compares at once. Four are 1.5 cache lines: more would fetch lines that few
// keys need.
const reach = 4

// lookup returns the tag's slot, or nil if it is not in the segment.
//
// With many keys the cost is dominated by cache misses. While the processor waits for one it continues speculatively,
// unless it mispredicted a branch. The position of a tag in a run of slots cannot be predicted. So the tags below it
// are counted without branches, and the only branch is whether that found the tag.
func (seg *segment) lookup(tag, extra uint64) *slot {
	if seg.slots.len > heapSlots { // smaller segments are in the cache
		if first, run := seg.slots.run(homeSlotOf(tag, seg.homeSlots)); run > reach {
			near := (*[reach]slot)(unsafe.Pointer(first))
			below := 0
			for i := range reach {
				below += one(near[i].tag-1 < tag-1) // the tag of an empty slot wraps around, and is not below
			}
			s := (*slot)(unsafe.Add(unsafe.Pointer(first), below*int(slotBytes)))
			if s.tag == tag && s.word&extraMask == extra {
				return s
			}
		}
	} else if i := homeSlotOf(tag, seg.homeSlots); i < seg.slots.len { // inlined: a call would cost as much as the comparison
		if s := seg.slots.at(i); s.tag == tag && s.word&extraMask == extra {
			return s
		}
	}
	if i, ok := seg.find(tag, extra); ok {
		return seg.slots.at(i)
	}
	return nil
}

// one returns 1 if b is true, else 0, and compiles to no branch.
func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// search looks for the tag from slot i on.
func (seg *segment) search(i int, tag, extra uint64) (int, bool) {
	for i < seg.slots.len {
		s, run := seg.slots.run(i)
		for {
			if s.tag-1 >= tag-1 { // the tag of an empty slot wraps around and ends the search
				if s.tag != tag {
					return i, false
				}
				if s.word&extraMask == extra {
					return i, true
				}
			}
			i++
			if run--; run == 0 {
				break
			}
			s = (*slot)(unsafe.Add(unsafe.Pointer(s), slotBytes))
		}
	}
	return i, false
}

// maxShift is the maximum distance at which an insertion looks for a free slot.
const maxShift = 256

// insert adds a key that find did not find. It reports whether there was room.
func (t *Table) insert(seg *segment, s slot, now int64) bool {
	if seg.live >= seg.limit {
		t.makeRoom(seg, now, false)
	}
	for attempt := 0; ; attempt++ {
		at, _ := seg.find(s.tag, s.word&extraMask)
		end := min(seg.slots.len, at+maxShift)
		for free := at; free < end; free++ {
			f := seg.slots.at(free)
			if f.tag == 0 {
				seg.live++
			} else if f.expiresAt() > now {
				continue
			} else {
				t.arena.release(f)
			}
			for i := free; i > at; i-- {
				*seg.slots.at(i) = *seg.slots.at(i - 1)
			}
			*seg.slots.at(at) = s
			return true
		}
		if !t.makeRoom(seg, now, attempt > 0) {
			return false
		}
	}
}

// makeRoom deletes expired slots, or grows the segment if there are few or that was not enough. It reports whether it
// made room.
func (t *Table) makeRoom(seg *segment, now int64, mustGrow bool) bool {
	n := seg.slots.len
	grown := growth(n)
	if !t.region.fits(grown) || t.used.Load()+slotBytes*int64(grown-n) > t.maxBytes {
		// From here on insert reuses expired slots near a key's home; sweeping for each new key would be slow.
		seg.limit = ^uint32(0)
		return false
	}
	expired := 0
	for i := range n {
		if s := seg.slots.at(i); s.tag != 0 && s.expiresAt() <= now {
			expired++
		}
	}
	if expired > n/8 && !mustGrow {
		t.rebuild(seg, seg.slots, now)
		return true
	}
	larger, ok := t.region.grow(t, seg, grown)
	if !ok {
		seg.limit = ^uint32(0)
		return false
	}
	t.rebuild(seg, larger, now)
	return true
}

// growth returns the next size of a segment: doubled while small, then one more page, so that little is empty, or 1/24
// more, so that large segments are not moved all the time.
func growth(n int) int {
	switch {
	case n == 0:
		return firstSlots
	case n < heapSlots:
		return 2 * n
	}
	return n + max(slotsPerPage, n/24)
}

// rebuild moves the live slots to to, which is the segment's own memory, a larger piece that starts with it, or new
// memory. It works in place: first all slots move to the far end in order, then spread moves each to its position.
func (t *Table) rebuild(seg *segment, to slots, now int64) {
	first := to.len
	for i := seg.slots.len - 1; i >= 0; i-- {
		s := seg.slots.at(i)
		switch {
		case s.tag == 0:
		case s.expiresAt() <= now:
			t.arena.release(s)
		default:
			first--
			*to.at(first) = *s
		}
	}
	t.spread(seg, to, first)
}

// spread gives a segment the memory to, whose sorted slots are from first to the end: each moves to its home, or after
// the previous one.
func (t *Table) spread(seg *segment, to slots, first int) {
	homes := homeSlotsFor(to, first)
	next := 0
	for i := first; i < to.len; i++ {
		s := *to.at(i)
		at := max(next, homeSlotOf(s.tag, homes))
		for ; next < at; next++ {
			*to.at(next) = slot{}
		}
		*to.at(at) = s
		next = at + 1
	}
	for ; next < to.len; next++ {
		*to.at(next) = slot{}
	}
	seg.slots, seg.homeSlots = to, homes
	seg.live = uint32(to.len - first)
	seg.limit = uint32(to.len - to.len/10)
	if to.len > heapSlots {
		t.region.homeSlots[t.indexOf(seg)].Store(homes)
	}
}

func homeSlotOf(tag uint64, homes uint32) int {
	home, _ := bits.Mul64(tag, uint64(homes))
	return int(home)
}

// homeSlotsFor returns the number of homes over which to spread the sorted slots from first on: nearly the number of
// slots, minus some for those that are pushed past the last home.
func homeSlotsFor(to slots, first int) uint32 {
	homes := to.len - to.len/48 - 4
	for {
		next, fits := 0, true
		for i := first; i < to.len && fits; i++ {
			at := max(next, homeSlotOf(to.at(i).tag, uint32(homes)))
			fits = at <= i
			next = at + 1
		}
		if fits {
			return uint32(homes)
		}
		homes -= homes/64 + 1
	}
}
