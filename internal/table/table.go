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
	"crypto/rand"
	"encoding/binary"
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

	generations generations

	before int64 // until when states that the version before wrote may be there

	// SavedAt is when the snapshot was saved that the table was loaded from, in microseconds since the epoch; 0 if there was none.
	SavedAt int64
}

// Seed is the secret that a table's hash is keyed with. Without it nobody can choose keys that collide. It can be
// saved with a snapshot, which the standard library's maphash cannot.
type Seed [4]uint64

// NewSeed returns a random seed.
func NewSeed() Seed {
	var b [32]byte
	rand.Read(b[:])
	var s Seed
	for i := range s {
		s[i] = binary.LittleEndian.Uint64(b[8*i:]) | 1
	}
	return s
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

// ExpiresAt returns when a key's state of this kind is that of a key never seen, or 0 if there is none.
func (t *Table) ExpiresAt(h Hash, p *step.Params) int64 {
	seg := &t.segments[h.segment()]
	seg.mu.Lock()
	defer seg.mu.Unlock()
	if i, ok := seg.find(h.tagFor(p.Identity()), h.extra()); ok {
		return seg.slots.at(i).expiresAt()
	}
	return 0
}

// Free reports whether a key has no state of this kind, or one that has worn off, whose slot it frees: the next take that is
// charged inserts another.
func (t *Table) Free(h Hash, p *step.Params, now int64) bool {
	seg := &t.segments[h.segment()]
	seg.mu.Lock()
	defer seg.mu.Unlock()
	i, ok := seg.find(h.tagFor(p.Identity()), h.extra())
	if !ok {
		return true
	}
	s := seg.slots.at(i)
	if s.expiresAt() > inRange(now) {
		return false
	}
	s.free()
	return true
}

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
