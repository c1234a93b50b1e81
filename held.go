package sluice

import (
	"hash/maphash"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// held is what a process holds of keys: leases, or what it believes of them. Every decision looks here, and changes are
// rare, so that looking takes no lock and a change makes a new map.
type held[T any] struct {
	seed   maphash.Seed
	shards [heldShards]heldShard[T]
}

type heldShard[T any] struct {
	mu  sync.Mutex // held while the map is replaced; taken before that of what it holds
	all atomic.Pointer[map[uint64]heldOf[T]]
}

// heldOf is what is held of one key. Two keys with the same hash are rare, and the second is not held.
type heldOf[T any] struct {
	name heldName
	it   *T
}

type heldName struct{ rule, key string }

const (
	heldShards = 256 // small maps, which are quickly replaced
	maxHeld    = 10_000
)

func newHeld[T any]() held[T] { return held[T]{seed: maphash.MakeSeed()} }

func (h *held[T]) shard(r *Rule, key string) (*heldShard[T], uint64) {
	hash := maphash.String(h.seed, key) ^ r.id.A // a digest's bits are as good as drawn
	return &h.shards[hash%heldShards], hash
}

func (s *heldShard[T]) load() map[uint64]heldOf[T] {
	if all := s.all.Load(); all != nil {
		return *all
	}
	return nil
}

// find returns what is held of the key, or nil.
func (h *held[T]) find(r *Rule, key string) *T {
	shard, hash := h.shard(r, key)
	if e, ok := shard.load()[hash]; ok && e.name.key == key && e.name.rule == r.Name {
		return e.it
	}
	return nil
}

// add is find, with what is held made if there is room for one more.
func (h *held[T]) add(t *Take, make func(name heldName, slot string) *T) *T {
	shard, hash := h.shard(t.Rule, t.Key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if e := h.find(t.Rule, t.Key); e != nil {
		return e
	}
	all := shard.load()
	if _, taken := all[hash]; taken || len(all) >= maxHeld/heldShards {
		return nil
	}
	e := heldOf[T]{name: heldName{t.Rule.Name, strings.Clone(t.Key)}}
	e.it = make(e.name, strings.Clone(t.Slot))
	more := maps.Clone(all)
	if more == nil {
		more = map[uint64]heldOf[T]{}
	}
	more[hash] = e
	shard.all.Store(&more)
	return e.it
}

// each calls keep with all that is held of a key, or of all keys if there is no rule, and lets go of what it does not
// want kept. It tells whether something is left.
func (h *held[T]) each(r *Rule, key string, keep func(*T) bool) (left bool) {
	if r != nil {
		shard, hash := h.shard(r, key)
		return shard.each(func(at uint64, e heldOf[T]) bool {
			return at != hash || e.name != heldName{r.Name, key} || keep(e.it)
		})
	}
	for i := range h.shards {
		some := h.shards[i].each(func(_ uint64, e heldOf[T]) bool { return keep(e.it) })
		left = left || some
	}
	return left
}

func (s *heldShard[T]) each(keep func(uint64, heldOf[T]) bool) (left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.load()
	var gone []uint64
	for hash, e := range all {
		if !keep(hash, e) {
			gone = append(gone, hash)
		}
	}
	if len(gone) == 0 {
		return len(all) > 0
	}
	fewer := maps.Clone(all)
	for _, hash := range gone {
		delete(fewer, hash)
	}
	s.all.Store(&fewer)
	return len(fewer) > 0
}
