package remote

import (
	"hash/maphash"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluiceproject/sluice/internal/group"
)

// keyMap is a sharded copy-on-write map from bucket to per-key state (leases or estimates). Reads take no lock, because
// every decision reads and writes are rare.
type keyMap[T any] struct {
	seed   maphash.Seed
	shards [keyMapShards]keyMapShard[T]
}

type keyMapShard[T any] struct {
	mu  sync.Mutex // held while the map is replaced
	all atomic.Pointer[map[uint64]keyMapEntry[T]]
}

// keyMapEntry is the entry of one key. If two keys have the same hash, which is rare, only the first has an entry.
type keyMapEntry[T any] struct {
	name  bucketID
	value *T
}

type bucketID struct{ rule, key string }

const (
	keyMapShards   = 256 // small maps, which are copied quickly
	maxTrackedKeys = 10_000
)

func newKeyMap[T any]() keyMap[T] { return keyMap[T]{seed: maphash.MakeSeed()} }

func (h *keyMap[T]) shard(r *group.Rule, key string) (*keyMapShard[T], uint64) {
	hash := maphash.String(h.seed, key) ^ r.ID.A // the bits of a digest are uniform
	return &h.shards[hash%keyMapShards], hash
}

func (s *keyMapShard[T]) load() map[uint64]keyMapEntry[T] {
	if all := s.all.Load(); all != nil {
		return *all
	}
	return nil
}

// find returns the state of the key, or nil.
func (h *keyMap[T]) find(r *group.Rule, key string) *T {
	shard, hash := h.shard(r, key)
	if e, ok := shard.load()[hash]; ok && e.name.key == key && e.name.rule == r.Name {
		return e.value
	}
	return nil
}

// add returns the state of the key. It creates it if there is room, and otherwise returns nil.
func (h *keyMap[T]) add(t *group.Op, make func(name bucketID, slot string) *T) *T {
	shard, hash := h.shard(t.By, t.Key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if e := h.find(t.By, t.Key); e != nil {
		return e
	}
	all := shard.load()
	if _, taken := all[hash]; taken || len(all) >= maxTrackedKeys/keyMapShards {
		return nil
	}
	e := keyMapEntry[T]{name: bucketID{t.By.Name, strings.Clone(t.Key)}}
	e.value = make(e.name, strings.Clone(t.HashTag))
	more := maps.Clone(all)
	if more == nil {
		more = map[uint64]keyMapEntry[T]{}
	}
	more[hash] = e
	shard.all.Store(&more)
	return e.value
}

// each calls keep with the state of a key, or of all keys if r is nil, and deletes it if keep returns false. It reports
// whether the map is not empty afterwards.
func (h *keyMap[T]) each(r *group.Rule, key string, keep func(*T) bool) (left bool) {
	if r != nil {
		shard, hash := h.shard(r, key)
		return shard.each(func(at uint64, e keyMapEntry[T]) bool {
			return at != hash || e.name != bucketID{r.Name, key} || keep(e.value)
		})
	}
	for i := range h.shards {
		some := h.shards[i].each(func(_ uint64, e keyMapEntry[T]) bool { return keep(e.value) })
		left = left || some
	}
	return left
}

func (s *keyMapShard[T]) each(keep func(uint64, keyMapEntry[T]) bool) (left bool) {
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
