//go:build (amd64 || arm64) && !race

package table

import (
	"math/bits"
	"unsafe"
)

//go:noescape
func prefetch(p unsafe.Pointer)

// prefetch looks at the segment without its lock and may so ask for the wrong address, which harms nothing.
func (t *Table) prefetch(segment, tag uint64) {
	seg := &t.segments[segment]
	home, _ := bits.Mul64(tag, uint64(seg.homes))
	prefetch(unsafe.Add(unsafe.Pointer(unsafe.SliceData(seg.slots)), home*uint64(slotBytes)))
}
