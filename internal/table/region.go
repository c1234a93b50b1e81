package table

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// The region is address space outside of the Go heap where segments grow in place. Growing on the heap would leave a
// trail of dead arrays as large as the table before the collector came round, and a budget is a promise about
// resident memory. Pages are resident from when they are first written.
//
// Small segments are on the heap: a page each for a thousand segments would be much for a table of a few keys. Where
// no memory can be mapped, all are.

const pageBytes = 4096

type region struct {
	base   unsafe.Pointer
	stride int64 // bytes of each segment's share
	// homes are those of the segments in the region, and 0 for others. They are here once more because 4 KiB stay in
	// the processor's cache, and all segments do not.
	homes [segments]atomic.Uint32
}

// prefetch asks for the memory of a segment and of a tag's slot. It looks without the segment's lock and may so ask for
// what was there a moment ago, which harms nothing.
func (r *region) prefetch(seg *segment, index, tag uint64) {
	if homes := r.homes[index].Load(); homes > 0 {
		home, _ := bits.Mul64(tag, uint64(homes))
		prefetch(unsafe.Pointer(seg), unsafe.Add(r.base, index*uint64(r.stride)+home*uint64(slotBytes)))
	}
}

// reserve maps address space for segments of up to a quarter more than an equal share of the budget, since keys do not
// spread quite evenly, and for the sketch.
func (r *region) reserve(t *Table) {
	stride := (t.budget/segments*5/4 + pageBytes) &^ (pageBytes - 1)
	if stride < 4*pageBytes {
		return
	}
	mapped := mapMemory(stride*segments + t.sketch.bytes())
	if mapped == nil {
		return
	}
	r.base, r.stride = unsafe.Pointer(unsafe.SliceData(mapped)), stride
	t.sketch.cells = unsafe.Slice((*atomic.Uint64)(unsafe.Add(r.base, stride*segments)), t.sketch.bytes()/8)
	runtime.AddCleanup(t, unmapMemory, mapped)
}

// fits tells whether a segment may have n slots.
func (r *region) fits(n int) bool {
	return r.base == nil || n <= heapSlots || pages(n)*pageBytes <= r.stride
}

func pages(n int) int64 { return (int64(n)*slotBytes + pageBytes - 1) / pageBytes }

// grow returns memory for at least n slots, paid for from the budget. It begins with the segment's own slots if those
// are in the region.
func (r *region) grow(t *Table, seg *segment, n int) ([]slot, bool) {
	had := int64(len(seg.slots)) * slotBytes
	if r.base == nil || n <= heapSlots {
		if !t.spend(int64(n)*slotBytes - had) {
			return nil, false
		}
		return make([]slot, n), true
	}
	if len(seg.slots) > heapSlots {
		had = pages(len(seg.slots)) * pageBytes
	}
	bytes := pages(n) * pageBytes
	if !t.spend(bytes - had) {
		return nil, false
	}
	start := unsafe.Add(r.base, int64(t.indexOf(seg))*r.stride)
	return unsafe.Slice((*slot)(start), bytes/slotBytes), true
}

func (t *Table) indexOf(seg *segment) uintptr {
	return (uintptr(unsafe.Pointer(seg)) - uintptr(unsafe.Pointer(&t.segments[0]))) / unsafe.Sizeof(*seg)
}
