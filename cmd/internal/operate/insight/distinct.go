package insight

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// registers is the number of registers of a distinct. The standard error is 1.04/√registers: 6.5 %.
const registers = 256

// distinct counts distinct hashes (HyperLogLog), four registers to a word. Adding a hash that was added before reads one
// word and writes none.
type distinct struct {
	words [registers / 4]atomic.Uint32
}

func (d *distinct) add(h uint64) {
	// The upper bits select keys to follow, so the lower ones select the register. Both sides need all bits to be random.
	at := h % registers
	rank := uint32(bits.LeadingZeros64(h|registers-1) + 1)
	shift := 8 * (at % 4)
	for w := &d.words[at/4]; ; {
		old := w.Load()
		if old>>shift&0xff >= rank || w.CompareAndSwap(old, old&^(0xff<<shift)|rank<<shift) {
			return
		}
	}
}

// takeOver moves the registers of from to d and clears from.
func (d *distinct) takeOver(from *distinct) {
	for i := range d.words {
		d.words[i].Store(from.words[i].Swap(0))
	}
}

// union returns the number of distinct hashes in a and b together.
func union(a, b *distinct) float64 {
	sum, empty := 0.0, 0
	for i := range a.words {
		x, y := a.words[i].Load(), b.words[i].Load()
		for shift := 0; shift < 32; shift += 8 {
			rank := max(x>>shift&0xff, y>>shift&0xff)
			if rank == 0 {
				empty++
			}
			sum += math.Ldexp(1, -int(rank))
		}
	}
	const m = float64(registers)
	estimate := 0.7213 / (1 + 1.079/m) * m * m / sum
	if empty > 0 && estimate <= 2.5*m { // counting of empty registers is more exact
		return m * math.Log(m/float64(empty))
	}
	return estimate
}
