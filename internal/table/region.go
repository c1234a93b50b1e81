package table

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// The region is address space outside of the Go heap in which segments grow in place. Growth on the heap would leave
// garbage as large as the table until the next collection, but the memory limit is a promise about resident memory.
// Pages become resident when they are first written.
//
// Segments grow by pages. The first pages of all segments are adjacent, then all second pages, and so on: a level of 4
// MiB each. Keys are distributed evenly, so segments have about the same size and the region is used from its beginning
// without gaps. A level that all segments have reached is turned into huge pages, which makes a decision on a cold key
// up to 10 % faster; before that, huge pages would make unused memory resident.
//
// Small segments are on the heap, because a page for each of a thousand segments would be too much for a table of a few
// keys. Where no memory can be mapped, the region is one large heap object: the system makes it resident page by page,
// too, but the garbage collector counts it as a whole.

const (
	pageBytes    = 4096
	slotsPerPage = int(pageBytes / slotBytes)
	levelBytes   = pageBytes * segments
	hugeBytes    = 2 << 20 // size of a huge page
)

type region struct {
	base    unsafe.Pointer
	levels  int
	reached []atomic.Int32 // number of segments that have reached each level
	// homeSlots are those of the segments in the region, and 0 for others. They are read without a segment's lock to
	// prefetch a slot, for which a slightly stale value is good enough. They are copied here because 4 KiB stay in the
	// processor's cache, and all segments do not.
	homeSlots [segments]atomic.Uint32
}

// slots returns the memory of a segment in the region.
func (r *region) slots(index uint64, n int) slots {
	return slots{unsafe.Add(r.base, index*pageBytes), n}
}

// reserve maps address space for the sketch, and for segments of up to 125 % of an equal share of the memory limit,
// because keys are not distributed quite evenly.
func (r *region) reserve(t *Table) {
	r.levels = int(t.maxBytes*5/4/levelBytes) + 1
	r.reached = make([]atomic.Int32, r.levels)
	n := int64(r.levels)*levelBytes + t.sketch.bytes() + usedKeysBytes(t.maxBytes)
	if mapped := mapMemory(n + hugeBytes); mapped != nil {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(mapped)))
		r.base = unsafe.Pointer(&mapped[-start&(hugeBytes-1)])
		runtime.AddCleanup(t, unmapMemory, mapped)
	} else {
		r.base = unsafe.Pointer(unsafe.SliceData(make([]uint64, n/8)))
	}
	t.sketch.cells = unsafe.Slice((*atomic.Uint64)(unsafe.Add(r.base, r.levels*levelBytes)), t.sketch.bytes()/8)
	after := unsafe.Add(r.base, int64(r.levels)*levelBytes+t.sketch.bytes())
	t.sketch.usedKeys.init(unsafe.Slice((*uint64)(after), usedKeysBytes(t.maxBytes)/8))
}

func pages(n int) int { return (n + slotsPerPage - 1) / slotsPerPage }

// fits reports whether a segment may have n slots.
func (r *region) fits(n int) bool { return pages(n) <= r.levels }

// grow returns memory for at least n slots and charges it to the memory limit. It starts with the segment's own slots
// if those are in the region.
func (r *region) grow(t *Table, seg *segment, n int) (slots, bool) {
	had := int64(seg.slots.len) * slotBytes
	if n <= heapSlots {
		if !t.reserveBytes(int64(n)*slotBytes - had) {
			return slots{}, false
		}
		return slots{unsafe.Pointer(unsafe.SliceData(make([]slot, n))), n}, true
	}
	first := int64(0) // first new level
	if seg.slots.len > heapSlots {
		first = int64(pages(seg.slots.len))
		had = first * pageBytes
	}
	if !t.reserveBytes(int64(pages(n))*pageBytes - had) {
		return slots{}, false
	}
	for level := first; level < int64(pages(n)); level++ {
		if r.reached[level].Add(1) == segments {
			makeHuge(unsafe.Slice((*byte)(unsafe.Add(r.base, level*levelBytes)), levelBytes))
		}
	}
	return r.slots(t.indexOf(seg), pages(n)*slotsPerPage), true
}

func (t *Table) indexOf(seg *segment) uint64 {
	return uint64((uintptr(unsafe.Pointer(seg)) - uintptr(unsafe.Pointer(&t.segments[0]))) / unsafe.Sizeof(*seg))
}
