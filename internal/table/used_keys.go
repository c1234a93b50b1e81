package table

import (
	"math/bits"
	"sync"
)

// usedKeys records which keys were counted in the sketch, in Bloom filters. A key that is not in it was not counted
// there, or has been idle until it was fully reset: its next request is decided as its first, even though its cells are
// shared with other keys. False positives are possible, false negatives are not.
//
// It has parts, each for one band. When a part is full, its band continues with a part whose keys have all expired, of
// any band; without one it overfills the last. One part is reserved for each band that has none, so that a flood on a
// weekly quota does not take those of a per-second limit.

const (
	usedKeysParts  = 8
	usedKeysHashes = 4
	usedKeysBits   = 8 // per key in a full part
)

type usedKeys struct {
	mu      sync.Mutex // guards the fields below; acquired after the segments' locks
	parts   [usedKeysParts]usedKeysPart
	current [bands]*usedKeysPart
	blind   int64 // until then every key may have been counted, because a snapshot contains the cells and not the keys
}

type usedKeysPart struct {
	words []uint64
	band  uint64
	keys  int
	until int64 // time at which the last key is fully reset, in microseconds
}

func usedKeysBytes(maxBytes int64) int64 { return min(max(maxBytes/16, 1<<16), 16<<20) }

func (s *usedKeys) init(words []uint64) {
	n := len(words) / usedKeysParts
	for i := range s.parts {
		s.parts[i].words = words[i*n : (i+1)*n]
	}
}

func (p *usedKeysPart) bit(h Hash, i uint64) (word *uint64, mask uint64) {
	at, _ := bits.Mul64((h.tag+i*(h.spot|1))*0x9E3779B97F4A7C15, uint64(len(p.words))*64)
	return &p.words[at/64], 1 << (at % 64)
}

// has reports whether the key may have been counted in the band's cells.
func (s *usedKeys) has(h Hash, band uint64, now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now < s.blind {
		return true
	}
	for i := range s.parts {
		if p := &s.parts[i]; p.band == band && now < p.until && p.has(h) {
			return true
		}
	}
	return false
}

func (p *usedKeysPart) has(h Hash) bool {
	for i := range uint64(usedKeysHashes) {
		if word, mask := p.bit(h, i); *word&mask == 0 {
			return false
		}
	}
	return true
}

// add records that the key is counted in the band's cells until a time.
func (s *usedKeys) add(h Hash, band uint64, now, until int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.part(band, now)
	if p == nil {
		s.blind = max(s.blind, until)
		return
	}
	p.until = max(p.until, until)
	isNew := 0
	for i := range uint64(usedKeysHashes) {
		word, mask := p.bit(h, i)
		if *word&mask == 0 {
			isNew = 1
		}
		*word |= mask
	}
	p.keys += isNew
}

// part returns the part to which the band's keys are added, or nil if there is none.
func (s *usedKeys) part(band uint64, now int64) *usedKeysPart {
	p := s.current[band]
	if p != nil && p.band == band && now < p.until && p.keys < len(p.words)*64/usedKeysBits {
		return p
	}
	spare := 0
	var free *usedKeysPart
	var has [bands]bool
	for i := range s.parts {
		if q := &s.parts[i]; q.until <= now {
			free = q
			spare++
		} else {
			has[q.band] = true
		}
	}
	for b := range has {
		if !has[b] && uint64(b) != band {
			spare--
		}
	}
	if spare <= 0 && p != nil && p.band == band {
		return p // overfull
	}
	if spare <= 0 { // only if a clock ran backwards and parts are live again
		return nil
	}
	p = free
	if p.keys > 0 {
		clear(p.words)
	}
	p.band, p.keys, p.until = band, 0, 0
	s.current[band] = p
	return p
}
