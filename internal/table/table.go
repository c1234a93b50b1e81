// Package table is a compact hash table of limiter states: integers in, integers out. It knows the algorithms of
// package step and nothing else; the memory store, and the limiter's own fallback, are built on it.
//
// # Shape
//
// A thousand segments, each with its own mutex, hold slots of 24 bytes: a tag of 64 hash bits and a state. There is no
// pointer per key for the collector to look at. Slots are sorted by tag, so that a search for a key that is not there
// ends early and a segment works when it is all but full. Which segment a key belongs to is chosen by a second hash,
// and two more bits of that are kept in the slot: 76 bits tell two keys apart, so that among ten million live keys
// the chance that any two are confused is below 1e-9. Keys themselves are never kept.
//
// # Memory
//
// The table never uses more than its memory limit. A state says when it equals that of a key never seen; such a slot is free
// for the next key, and nothing else is ever dropped. What finds no room is counted in a sketch, which may count too
// much and never counts too little: see sketch.go. Growth moves one segment at a time and leaves nothing behind for
// the collector; see region.go.
//
// # Locks
//
// Segments are locked in the order of their index; the arena's lock comes after theirs.
package table

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

const (
	segmentBits = 10
	segments    = 1 << segmentBits
	slotBytes   = int64(unsafe.Sizeof(slot{}))
	firstSlots  = 8
	heapSlots   = 128 // larger segments live in the region

	// DefaultBytes is the default memory limit.
	DefaultBytes = 256 << 20
	// MinBytes is the smallest memory limit: below it there would be little but overhead.
	MinBytes = 1 << 20
)

// Config is how a table is made. The zero Config works.
type Config struct {
	MaxBytes int64  // memory limit; default DefaultBytes, at least MinBytes
	Seed     *Seed  // default random
	_        [0]int // keeps literals keyed
}

// Table is safe for concurrent use. It needs no closing: its memory goes when it does.
type Table struct {
	// segments are first, so that each begins a cache line. They also keep the region alive: whoever holds a
	// segment's lock holds the table.
	segments [segments]segment

	seed     Seed
	maxBytes int64
	used     atomic.Int64 // bytes of the memory limit that are taken
	region   region
	arena    arena
	sketch   sketch

	// Rules are the numbers that give the states their meaning.
	Rules group.Registry

	before int64 // until when states that the version before wrote may be there

	// SavedAt is when the snapshot was saved that the table was loaded from, in microseconds since the epoch; 0 if there was none.
	SavedAt int64
}

type segment struct {
	mu        sync.Mutex // guards the fields below
	homeSlots uint32     // the slot of a tag is at or after tag*homes/2^64
	live      uint32     // slots that are not empty
	limit     uint32     // make room when live reaches it
	slots     slots
	rare      *rareState // what few segments have
	_         [16]byte
}

// rareState is what few segments have.
type rareState struct {
	blocks []block // sorted by tag
}

// slot is one key. An empty slot has tag 0.
type slot struct {
	tag   uint64
	word  uint64 // shape, whether wide, two more hash bits, and FreshAt
	value uint64 // of a narrow state; of a wide one, where its words are
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

// New returns an empty table.
func New(c Config) *Table {
	t := &Table{maxBytes: c.MaxBytes}
	if t.maxBytes == 0 {
		t.maxBytes = DefaultBytes
	}
	t.maxBytes = max(t.maxBytes, MinBytes)
	if c.Seed != nil {
		t.seed = *c.Seed
	} else {
		t.seed = NewSeed()
	}
	t.sketch.init(t.maxBytes)
	t.arena.init(t.maxBytes)
	t.used.Store(int64(unsafe.Sizeof(*t)) + t.sketch.bytes() + usedKeysBytes(t.maxBytes))
	t.region.reserve(t)
	return t
}

// Seed returns what the table's hashes are keyed with, to be kept with a snapshot and nowhere else.
func (t *Table) Seed() Seed { return t.seed }

// Bytes is how much of the memory limit is in use.
func (t *Table) Bytes() int64 { return t.used.Load() }

// MaxBytes is the most that Bytes can be.
func (t *Table) MaxBytes() int64 { return t.maxBytes }

// Len counts the keys whose state differs from that of a key never seen. It visits all segments.
func (t *Table) Len(now int64) int {
	n := 0
	for i := range t.segments {
		seg := &t.segments[i]
		seg.mu.Lock()
		for j := range seg.slots.len {
			if s := seg.slots.at(j); s.tag != 0 && s.expiresAt() > now {
				n++
			}
		}
		seg.mu.Unlock()
	}
	return n
}

// reserveBytes takes bytes from the memory limit if they are there.
func (t *Table) reserveBytes(n int64) bool {
	if t.used.Add(n) > t.maxBytes {
		t.used.Add(-n)
		return false
	}
	return true
}

// find returns where the tag is, or where it would be inserted.
func (seg *segment) find(tag, extra uint64) (i int, ok bool) {
	home, _ := bits.Mul64(tag, uint64(seg.homeSlots))
	i = int(home)
	if i >= seg.slots.len { // there are none
		return i, false
	}
	if s := seg.slots.at(i); s.tag == tag && s.word&extraMask == extra {
		return i, true
	}
	return seg.search(i, tag, extra)
}

// reach is how many slots lookup compares at once. Four are a line and a half: more would fetch lines that few keys need.
const reach = 4

// lookup returns the tag's slot, or nil if it is not there.
//
// Among many keys it is the misses of the processor's cache that cost, and while it waits for one the processor goes
// on with what comes next, unless that hangs on a branch it guessed wrong. Where in a run of slots a tag stands cannot
// be guessed. So the tags below it are counted without branches, and the one branch asks whether that found it.
func (seg *segment) lookup(tag, extra uint64) *slot {
	if seg.slots.len > heapSlots { // smaller ones are in the cache
		if first, run := seg.slots.run(homeSlotOf(tag, seg.homeSlots)); run > reach {
			near := (*[reach]slot)(unsafe.Pointer(first))
			below := 0
			for i := range reach {
				below += one(near[i].tag-1 < tag-1) // an empty slot's tag wraps around, and is not below
			}
			s := (*slot)(unsafe.Add(unsafe.Pointer(first), below*int(slotBytes)))
			if s.tag == tag && s.word&extraMask == extra {
				return s
			}
		}
	} else if i := homeSlotOf(tag, seg.homeSlots); i < seg.slots.len { // in line: the call would cost as much as the look
		if s := seg.slots.at(i); s.tag == tag && s.word&extraMask == extra {
			return s
		}
	}
	if i, ok := seg.find(tag, extra); ok {
		return seg.slots.at(i)
	}
	return nil
}

// one is 1 if b and 0 if not, and compiles to no branch.
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
			if s.tag-1 >= tag-1 { // an empty slot's tag wraps around and ends the search
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

// maxShift bounds how far an insertion looks for a free slot.
const maxShift = 256

// insert adds a key that find did not find. It fails if there is no room.
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

// makeRoom drops what has expired, or grows the segment if that is little or was not enough.
func (t *Table) makeRoom(seg *segment, now int64, mustGrow bool) bool {
	n := seg.slots.len
	grown := growth(n)
	if !t.region.fits(grown) || t.used.Load()+slotBytes*int64(grown-n) > t.maxBytes {
		// From here on insert uses what expires near a key's own place; to sweep for each new key would be slow.
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

// growth is the next size of a segment: doubled while small, then a page more, so that little stands empty, or a
// twenty-fourth part, so that large segments are not moved all the time.
func growth(n int) int {
	switch {
	case n == 0:
		return firstSlots
	case n < heapSlots:
		return 2 * n
	}
	return n + max(slotsPerPage, n/24)
}

// rebuild moves the live slots to to, which is the segment's own memory or a larger piece of it, or new memory. It works
// in place: first all slots move to the far end in order, then spread puts each in its place.
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

// spread gives a segment the memory to, whose sorted slots begin at first and reach to the end: each moves to its home,
// or behind the one before.
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

// homeSlotsFor returns how many homes to spread the sorted slots from first on over: nearly as many as there are slots,
// less some for those that are pushed past the last home.
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
