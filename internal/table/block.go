package table

import (
	"slices"
	"unsafe"
)

// block denies a key until a time, whatever its state.
type block struct {
	tag, extra uint64
	until      int64
}

const blockBytes = int64(unsafe.Sizeof(block{}))

func compareBlocks(a, b block) int {
	switch {
	case a.tag != b.tag && a.tag < b.tag, a.tag == b.tag && a.extra < b.extra:
		return -1
	case a.tag == b.tag && a.extra == b.extra:
		return 0
	}
	return 1
}

// blockedUntil returns when the key's block ends, or 0.
func (seg *segment) blockedUntil(h Hash, now int64) int64 {
	i, ok := slices.BinarySearchFunc(seg.rare.blocks, block{tag: h.tag, extra: h.extra()}, compareBlocks)
	if !ok || seg.rare.blocks[i].until <= now {
		return 0
	}
	return seg.rare.blocks[i].until
}

// BlockedUntil returns when the key's block ends, or 0 if it is not blocked.
func (t *Table) BlockedUntil(h Hash, now int64) int64 {
	seg := &t.segments[h.segment()]
	seg.mu.Lock()
	defer seg.mu.Unlock()
	if seg.rare == nil {
		return 0
	}
	return seg.blockedUntil(h, now)
}

// Block denies a key until a time; a time in the past lifts the block. It reports whether there was room.
func (t *Table) Block(h Hash, now, until int64) bool {
	seg := &t.segments[h.segment()]
	seg.mu.Lock()
	defer seg.mu.Unlock()
	if seg.rare == nil {
		if until <= now {
			return true
		}
		seg.rare = &rareState{}
	}
	had := len(seg.rare.blocks)
	seg.rare.blocks = slices.DeleteFunc(seg.rare.blocks, func(b block) bool {
		return b.until <= now || b.tag == h.tag && b.extra == h.extra()
	})
	t.used.Add(-int64(had-len(seg.rare.blocks)) * blockBytes)
	if until > now {
		if !t.reserveBytes(blockBytes) {
			return false
		}
		b := block{h.tag, h.extra(), until}
		i, _ := slices.BinarySearchFunc(seg.rare.blocks, b, compareBlocks)
		seg.rare.blocks = slices.Insert(seg.rare.blocks, i, b)
	}
	if len(seg.rare.blocks) == 0 {
		seg.rare = nil
	}
	return true
}
