//go:build (amd64 || arm64) && !race

package table

import (
	"math/bits"
	"unsafe"
)

//go:noescape
func prefetch(p unsafe.Pointer)

// Prefetch asks for the memory of a key's slot while the caller does something else, such as reading the clock. It
// looks at the segment without its lock and may so ask for the wrong address, which harms nothing.
func (t *Table) Prefetch(h Hash) {
	seg := &t.segments[h.segment()]
	home, _ := bits.Mul64(h.tag, uint64(seg.homes))
	prefetch(unsafe.Add(unsafe.Pointer(unsafe.SliceData(seg.slots)), home*uint64(slotBytes)))
}
