package insight

import (
	"hash/fnv"
	"unsafe"
)

// Repeatable makes the recorder follow the same keys in each run.
func (r *Recorder) Repeatable() *Recorder {
	r.hash = func(key string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(key))
		x := h.Sum64() * 0x9E3779B97F4A7C15
		x ^= x >> 32
		return x * 0xC2B2AE3D27D4EB4F
	}
	return r
}

// Bounds of the documentation, in bytes.
const (
	MaxBytes      = 72 << 10
	MaxBriefBytes = 18 << 10
)

// Untouched is what a limit without decisions takes.
type Untouched = state

// BytesPerRule returns the largest memory of a limit's sketch.
func BytesPerRule(isBrief bool) int {
	z := full
	if isBrief {
		z = brief
	}
	n := z.sum() + 4
	return int(unsafe.Sizeof(sketch{})) + (fineSlots+coarseSlots)*int(unsafe.Sizeof(cell{})) + int(unsafe.Sizeof(followed{})) +
		n*int(unsafe.Sizeof(record{})+8) + n*maxName + maxLadders*int(unsafe.Sizeof(ladder{}))
}

// Bytes returns the memory of a limit's sketch.
func (r *Recorder) Bytes(name string) int {
	k := r.live.Load().byName[name].sketch.Load()
	n := int(unsafe.Sizeof(*k)) + (cap(k.fine.cells)+cap(k.coarse.cells))*int(unsafe.Sizeof(cell{})) + int(unsafe.Sizeof(*k.keys)) +
		cap(k.keys.keys)*int(unsafe.Sizeof(record{})) + cap(k.keys.hashes)*8 + len(k.ladders)*int(unsafe.Sizeof(ladder{}))
	for _, key := range k.keys.keys[:cap(k.keys.keys)] {
		n += cap(key.name)
	}
	return n
}

// Decisions returns the recorded decisions of a limit, and those denied.
func (r *Recorder) Decisions(name string) (all, denied int64) {
	f := r.refresh().byName[name].facts(r.micros())
	return f.decisions, f.denied
}

// Keys returns the number of distinct keys.
func (r *Recorder) Keys(name string) float64 {
	f := r.refresh().byName[name].facts(r.micros())
	return f.keys
}

// Need returns the room of a rung that the first followed key needs.
func (r *Recorder) Need(name string, rung int) int64 {
	f := r.refresh().byName[name].facts(r.micros())
	n, _ := f.records[0].needs(rung)
	return n
}

// SetSecurity marks a limit's rule as a security rule.
func (r *Recorder) SetSecurity(name string) { r.live.Load().byName[name].security.Store(true) }
