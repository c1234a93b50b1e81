package table

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/sluiceproject/sluice/internal/group"
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

// Hash hashes a rule and a key.
func (t *Table) Hash(rule group.RuleID, key string) Hash { return t.Locate(rule, key, nil) }

// Locate hashes a rule and a key and asks for the memory of the key's slot, so that it is on its way while the caller
// does something else, such as reading the clock.
//
// Both lanes of the hash see every byte with their own secrets all the way, so that the two results are independent for
// keys of any length.
func (t *Table) Locate(rule group.RuleID, key string, p *step.Params) Hash {
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
		if homes := t.region.homeSlots[h.segment()].Load(); homes > 0 { // small ones are in the cache
			home, _ := bits.Mul64(h.tagFor(p.Identity()), uint64(homes))
			prefetch(unsafe.Pointer(&t.segments[h.segment()]), unsafe.Pointer(t.region.slots(h.segment(), 0).at(int(home))))
		}
	}
	return h
}

// withID is the hash under which it is remembered that a request with this ID was charged. It stays in the key's own
// segment, and so under its lock.
func (h Hash) withID(id uint64) Hash {
	return Hash{tag: fold(h.tag^id, 0xA0761D6478BD642F^bits.RotateLeft64(id, 32)), spot: h.spot ^ id&3}
}
