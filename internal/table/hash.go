package table

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/sluiceproject/sluice/internal/step"
)

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

// Hash is where a key lives: two independent hashes of rule and key.
type Hash struct {
	tag  uint64
	spot uint64 // the segment and the two extra bits
}

func (h Hash) segment() uint64 { return h.spot >> (64 - segmentBits) }

func (h Hash) extra() uint64 { return h.spot & 3 << freshBits }

// tagFor is the tag under which a kind of state is kept: kinds that cannot be read as each other do not share a slot.
func (h Hash) tagFor(identity uint64) uint64 {
	tag := h.tag ^ identity*0x9E3779B97F4A7C15
	if tag == 0 {
		return 1
	}
	return tag
}

// fold multiplies two words and folds the product: the building block of wyhash and its kin. With secret random
// operands the result for two different inputs is equal with a probability close to 2^-64.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// Hash hashes a rule and a key. Both lanes see every byte with their own secrets all the way, so that the two results
// are independent for keys of any length.
func (t *Table) Hash(rule RuleID, key string) Hash {
	s := &t.seed
	p := unsafe.Slice(unsafe.StringData(key), len(key))
	n := uint64(len(p))
	x := fold(rule.A^s[0], rule.B^s[1])
	y := x ^ s[3]
	for len(p) > 16 {
		a, b := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
		x = fold(a^s[1], b^x)
		y = fold(a^s[2], b^y)
		p = p[16:]
	}
	var a, b uint64
	switch {
	case len(p) >= 8:
		a, b = binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[len(p)-8:])
	case len(p) >= 4:
		a, b = uint64(binary.LittleEndian.Uint32(p)), uint64(binary.LittleEndian.Uint32(p[len(p)-4:]))
	case len(p) > 0:
		a = uint64(p[0])<<16 | uint64(p[len(p)>>1])<<8 | uint64(p[len(p)-1])
	}
	return Hash{
		tag:  fold(fold(a^s[1], b^x)^s[0], n^s[2]),
		spot: fold(fold(a^s[2], b^y)^s[3], n^s[1]),
	}
}

// cachedBytes is how much of slots a processor's cache holds, to be modest.
const cachedBytes = 1 << 20

// Locate hashes a rule and a key and asks for the memory of the key's slot, so that it is on its way while the caller
// does something else, such as reading the clock.
func (t *Table) Locate(rule RuleID, key string, p *step.Params) Hash {
	h := t.Hash(rule, key)
	if t.used.Load() > t.cached {
		t.prefetch(h.segment(), h.tagFor(p.Identity()))
	}
	return h
}

// withID is the hash under which it is remembered that a request with this ID was charged. It stays in the key's own
// segment, and so under its lock.
func (h Hash) withID(id uint64) Hash {
	return Hash{tag: fold(h.tag^id, 0xA0761D6478BD642F^bits.RotateLeft64(id, 32)), spot: h.spot ^ id&3}
}
