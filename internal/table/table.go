// Package table is a compact hash table of limiter states, all in integers. It depends only on the algorithms of
// package step. The memory store and the limiter's local fallback use it.
//
// # Shape
//
// About a thousand segments, each with its own mutex, contain slots of 24 bytes: a tag of 64 hash bits and a state.
// There is no pointer per key for the garbage collector to scan. Slots are sorted by tag, so that a search for a
// missing key ends early and a segment works when it is nearly full. A second hash selects the segment, and two more
// bits of it are kept in the slot: 76 bits distinguish keys, so that among ten million live keys the probability that
// any two are confused is below 1e-9. Keys themselves are not stored.
//
// # Memory
//
// The table never exceeds its memory limit. A state contains the time at which it is fully reset; from then on its slot
// is free for the next key, and no other slot is ever evicted. Keys without room are counted in a sketch, which may
// count too much and never counts too little: see sketch.go. Growth moves one segment at a time and leaves no garbage;
// see region.go.
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
	heapSlots   = 128 // larger segments are in the region

	// DefaultBytes is the default memory limit.
	DefaultBytes = 256 << 20
	// MinBytes is the minimum memory limit: below it there would be little but overhead.
	MinBytes = 1 << 20
)

// Config configures a table. The zero Config is valid.
type Config struct {
	MaxBytes int64  // memory limit; default DefaultBytes, at least MinBytes
	Seed     *Seed  // default random
	_        [0]int // keeps literals keyed
}

// Table is safe for concurrent use. It need not be closed: its memory is freed with it.
type Table struct {
	// segments are first, so that each starts at a cache line. They also keep the region alive: a holder of a segment's
	// lock references the table.
	segments [segments]segment

	seed     Seed
	maxBytes int64
	used     atomic.Int64 // allocated bytes of the memory limit
	region   region
	arena    arena
	sketch   sketch

	// Rules are the numbers that give the states their meaning.
	Rules group.Registry

	generations generations

	before int64 // time until which there may be states of the previous version

	// SavedAt is the time of the snapshot that the table was loaded from, in microseconds since the epoch; 0 if there
	// was none.
	SavedAt int64
}

// Seed is the secret key of a table's hash. Without it an attacker cannot choose keys that collide. Unlike the seed of
// the standard library's maphash it can be saved with a snapshot.
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

// Seed returns the secret key of the table's hash. It must be stored only with a snapshot.
func (t *Table) Seed() Seed { return t.seed }

// Bytes returns the used part of the memory limit.
func (t *Table) Bytes() int64 { return t.used.Load() }

// MaxBytes returns the memory limit.
func (t *Table) MaxBytes() int64 { return t.maxBytes }

// ExpiresAt returns the time at which a key's state of this kind is fully reset, or 0 if there is none.
func (t *Table) ExpiresAt(h Hash, p *step.Params) int64 {
	seg := &t.segments[h.segment()]
	seg.mu.Lock()
	defer seg.mu.Unlock()
	if i, ok := seg.find(h.tagFor(p.Identity()), h.extra()); ok {
		return seg.slots.at(i).expiresAt()
	}
	return 0
}

// Free reports whether a key has no live state of this kind. It frees the slot of an expired one, so that the next
// charged take inserts a new one.
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

// Len returns the number of keys that are not fully reset. It visits all segments.
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

// reserveBytes allocates bytes of the memory limit and reports whether they were available.
func (t *Table) reserveBytes(n int64) bool {
	if t.used.Add(n) > t.maxBytes {
		t.used.Add(-n)
		return false
	}
	return true
}
