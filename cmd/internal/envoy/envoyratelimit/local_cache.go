package envoyratelimit

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluiceproject/sluice"
)

// localCache remembers which counts are over which limits until their windows end, so that the store need not be asked
// about them. A count that is over one limit is not over a larger one, so the largest limit that it is over is remembered.
// A refund through this process removes the entry; other processes keep theirs until the window ends.
//
// It is bounded: what is added when it is full takes the place of something else. What it forgets is asked of the store.
type localCache struct {
	seed   maphash.Seed
	shards [16]localCacheShard

	hits, misses, evicted, expired, overwritten atomic.Uint64
}

type localCacheShard struct {
	mu       sync.Mutex // guards the fields below
	over     map[localCacheKey]overLimit
	bytes    int
	maxBytes int
	removals uint64 // by refunds
}

type localCacheKey struct {
	counter *sluice.Rule // one for all of its name
	key     string
}

// overLimit is the largest limit that a count is known to be over, and until when, in seconds.
type overLimit struct {
	until    int64
	requests uint32
}

// localCacheEntry is about what an entry costs beside its key.
const localCacheEntry = 96

func newLocalCache(bytes int) *localCache {
	c := &localCache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i] = localCacheShard{over: make(map[localCacheKey]overLimit), maxBytes: max(bytes/len(c.shards), 2*localCacheEntry)}
	}
	return c
}

func (c *localCache) shard(key string) *localCacheShard {
	return &c.shards[maphash.String(c.seed, key)%uint64(len(c.shards))]
}

// has reports whether a count is known to be over its limit at a time, in seconds. The number of removals is for add.
func (c *localCache) has(counter *sluice.Rule, requests uint32, key string, now int64) (over bool, removals uint64) {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := localCacheKey{counter, key}
	known, ok := s.over[k]
	if ok && now < known.until && requests <= known.requests {
		c.hits.Add(1)
		return true, s.removals
	}
	if ok && now >= known.until {
		s.drop(k)
		c.expired.Add(1)
	}
	c.misses.Add(1)
	return false, s.removals
}

// add remembers that a count is over its limit until then. It does not if there was a refund since has was called: the count
// may be from before it.
func (c *localCache) add(counter *sluice.Rule, key string, known overLimit, removals uint64) {
	s := c.shard(key)
	size := localCacheEntry + len(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if size > s.maxBytes || removals != s.removals {
		return
	}
	k := localCacheKey{counter, key}
	if old, ok := s.over[k]; ok {
		if old.until == known.until {
			known.requests = max(known.requests, old.requests)
		}
		s.drop(k) // to write to it would make the map keep this key's text, which is not ours
		c.overwritten.Add(1)
	}
	for old := range s.over { // any will do
		if s.bytes+size <= s.maxBytes {
			break
		}
		s.drop(old)
		c.evicted.Add(1)
	}
	k.key = strings.Clone(key)
	s.over[k] = known
	s.bytes += size
}

// remove lets the store decide again about a count that was lowered.
func (c *localCache) remove(counter *sluice.Rule, key string) {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removals++
	if k := (localCacheKey{counter, key}); s.over[k] != (overLimit{}) {
		s.drop(k)
	}
}

func (s *localCacheShard) drop(k localCacheKey) {
	delete(s.over, k)
	s.bytes -= localCacheEntry + len(k.key)
}

// gauges are the reference's statistics of its cache.
func (c *localCache) gauges(yield func(name string, value uint64)) {
	entries := 0
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		entries += len(s.over)
		s.mu.Unlock()
	}
	hits, misses := c.hits.Load(), c.misses.Load()
	yield("localcache.entryCount", uint64(entries))
	yield("localcache.hitCount", hits)
	yield("localcache.missCount", misses)
	yield("localcache.lookupCount", hits+misses)
	yield("localcache.evacuateCount", c.evicted.Load())
	yield("localcache.expiredCount", c.expired.Load())
	yield("localcache.overwriteCount", c.overwritten.Load())
}
