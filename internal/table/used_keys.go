package table

import (
	"math/bits"
	"sync"
)

// seen remembers which keys were counted in the sketch, in Bloom filters. What it does not know was not counted there,
// or has been idle until its state was that of a key never seen: its next request is decided as the first, although its
// cells are those of others too. It may know a key that was not counted, and never the other way round.
//
// It has parts, each of one band. A band fills a part and goes on with one whose keys have all been idle for long enough,
// of any band; without one it overfills the last. A part is left to each band that has none, so that a flood on a weekly
// quota does not take those that a per-second limit needs.

const (
	usedKeysParts  = 8
	usedKeysHashes = 4
	usedKeysBits   = 8 // of a part that is full, for each key
)

type usedKeys struct {
	mu      sync.Mutex // guards the fields below; comes after the segments'
	parts   [usedKeysParts]usedKeysPart
	current [bands]*usedKeysPart
	blind   int64 // until then every key may have been counted: a snapshot has the cells and not the keys
}

type usedKeysPart struct {
	words []uint64
	band  uint64
	keys  int
	until int64 // when the last key is as if never seen, in microseconds
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

// add notes that the key is counted in the band's cells until a moment.
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

// part is the one that the band's keys are added to, or nil if there is none.
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
	if spare <= 0 { // only after a clock that ran back has found parts live again
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
