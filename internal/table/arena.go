package table

import (
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// The arena stores the wide states: logs and rings of sub-windows. It allocates blocks of 2^k words from chunks that it
// never returns, and keeps freed blocks in a list per size, linked through their first word.
//
// Chunks are outside of the Go heap, like the region, because the garbage collector lets garbage grow to the size of
// the live heap: 64 MiB of logs on the heap made twice as much resident.

const (
	minClass = 2  // 4 words
	maxClass = 14 // 16,384 words: a log of 10,000 entries
)

// ref identifies a block by its class and its position + 1.
type ref uint64

func makeRef(class int, place uint64) ref { return ref(place+1)<<8 | ref(class) }

func (r ref) class() int    { return int(r & 0xFF) }
func (r ref) place() uint64 { return uint64(r>>8) - 1 }

type arena struct {
	chunkWords uint64
	chunks     atomic.Pointer[[][]uint64] // replaced, never changed; a block in use is guarded by its segment's lock

	mu   sync.Mutex // guards the fields below
	next uint64     // position of the first word never allocated
	free [maxClass + 1]ref
}

// init sizes the chunks: 1/16 of the memory limit, so that one chunk does not exhaust a small limit.
func (a *arena) init(maxBytes int64) {
	a.chunks.Store(new([][]uint64))
	a.chunkWords = 1 << maxClass
	for a.chunkWords < 1<<17 && int64(a.chunkWords)*8*32 < maxBytes {
		a.chunkWords *= 2
	}
}

// classFor returns the smallest class of at least n words.
func classFor(n int) int { return max(minClass, bits.Len64(uint64(n-1))) }

// words returns the block's memory.
func (a *arena) words(r ref) []uint64 {
	if r == 0 {
		return nil
	}
	place, size := r.place(), uint64(1)<<r.class()
	chunk := (*a.chunks.Load())[place/a.chunkWords]
	at := place % a.chunkWords
	return chunk[at : at+size : at+size]
}

// alloc returns a block of zeroes of at least n words, or 0 if there is no room.
func (a *arena) alloc(t *Table, n int) ref {
	class := classFor(n)
	if class > maxClass {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.free[class]; r != 0 {
		block := a.words(r)
		a.free[class] = ref(block[0])
		clear(block)
		return r
	}
	size := uint64(1) << class
	if a.end() < a.next+size {
		if !t.reserveBytes(int64(a.chunkWords) * 8) {
			return 0
		}
		a.giveLeftover()
		chunks := append(slices.Clone(*a.chunks.Load()), a.newChunk(t))
		a.chunks.Store(&chunks)
	}
	place := a.next
	a.next += size
	return makeRef(class, place)
}

// newChunk returns a zeroed chunk, which is unmapped with the table; on the heap if no memory can be mapped.
func (a *arena) newChunk(t *Table) []uint64 {
	mapped := mapMemory(int64(a.chunkWords) * 8)
	if mapped == nil {
		return make([]uint64, a.chunkWords)
	}
	runtime.AddCleanup(t, unmapMemory, mapped)
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mapped))), a.chunkWords)
}

// giveLeftover puts the rest of the last chunk on the free lists, so that the next block starts a new chunk.
func (a *arena) giveLeftover() {
	end := a.end()
	for a.next+1<<minClass <= end {
		class := min(maxClass, bits.Len64(end-a.next)-1)
		a.freeLocked(makeRef(class, a.next))
		a.next += 1 << class
	}
	a.next = end
}

// end returns the position after the last chunk.
func (a *arena) end() uint64 { return uint64(len(*a.chunks.Load())) * a.chunkWords }

func (a *arena) freeLocked(r ref) {
	a.words(r)[0] = uint64(a.free[r.class()])
	a.free[r.class()] = r
}

// release frees the block of a wide slot that will be removed.
func (a *arena) release(s *slot) {
	if s.word&wideFlag == 0 || s.value == 0 {
		return
	}
	a.mu.Lock()
	a.freeLocked(ref(s.value))
	a.mu.Unlock()
	s.value = 0
}
