package main

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"
)

var floorContender = contender{
	name: "floor", role: roleFloor, clock: "time.Since",
	about:     "the minimum: 64 shards, open addressing, {hash, time}, one CAS; cannot grow, evict or compute a retry time",
	scenarios: keyed,
	open:      func(s spec) (limiter, error) { return newFloor(s), nil },
}

const (
	floorShards = 64
	// floorLoad is the fill ratio of the floor's shards: 16-byte slots at 0.8 make 20 bytes per key.
	floorLoad = 0.8
)

// floor is a lower bound, not a usable limiter: a fixed table of hashes and theoretical arrival times, each advanced by
// one compare-and-swap.
type floor struct {
	seed   maphash.Seed
	start  time.Time
	every  int64 // nanoseconds between units
	depth  int64 // how far ahead of now a key's time may be
	shards [floorShards][]floorSlot
}

type floorSlot struct {
	hash atomic.Uint64 // 0 is free
	tat  atomic.Int64  // nanoseconds since start at which the key is fully reset
}

func newFloor(s spec) *floor {
	f := &floor{
		seed: maphash.MakeSeed(), start: time.Now(),
		every: int64(s.every), depth: int64(s.every) * s.burst,
	}
	perShard := int(float64(s.keys)/floorLoad/floorShards) + 32 // extra room for random imbalance with few keys
	for i := range f.shards {
		f.shards[i] = make([]floorSlot, perShard)
	}
	return f
}

func (f *floor) allow(key string) bool {
	h := max(1, maphash.String(f.seed, key))
	slots := f.shards[h>>58]
	home, _ := bits.Mul64(h<<6, uint64(len(slots)))
	now := int64(time.Since(f.start))
	i := int(home)
	for range slots {
		slot := &slots[i]
		found := slot.hash.Load()
		if found == 0 && !slot.hash.CompareAndSwap(0, h) {
			found = slot.hash.Load()
		}
		if found == 0 || found == h {
			return f.step(slot, now)
		}
		if i++; i == len(slots) {
			i = 0
		}
	}
	panic(fmt.Sprintf("the floor's shard of %d slots is full", len(slots)))
}

func (f *floor) step(slot *floorSlot, now int64) bool {
	for {
		old := slot.tat.Load()
		next := max(old, now) + f.every
		if next-now > f.depth {
			return false
		}
		if slot.tat.CompareAndSwap(old, next) {
			return true
		}
	}
}
