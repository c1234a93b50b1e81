package envoyratelimit

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluiceproject/sluice"
)

// localCache remembers which counts are over which limits until their windows end, so that the store need not be asked
// about them. A count that is over one limit is not over a larger one, so the limit is part of what is remembered.
//
// It is bounded: what is added when it is full takes the place of something else. What it forgets is asked of the store.
type localCache struct {
	seed   maphash.Seed
	shards [16]localCacheShard

	hits, misses, evicted, expired, overwritten atomic.Uint64
}

type localCacheShard struct {
	mu       sync.Mutex // guards the fields below
	until    map[localCacheKey]int64
	bytes    int
	maxBytes int
}

type localCacheKey struct {
	counter  *sluice.Rule
	requests uint32
	key      string
}

// localCacheEntry is about what an entry costs beside its key.
const localCacheEntry = 96

func newLocalCache(bytes int) *localCache {
	c := &localCache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i] = localCacheShard{until: make(map[localCacheKey]int64), maxBytes: max(bytes/len(c.shards), 2*localCacheEntry)}
	}
	return c
}

func (c *localCache) shard(key string) *localCacheShard {
	return &c.shards[maphash.String(c.seed, key)%uint64(len(c.shards))]
}

// has tells whether a count is known to be over its limit at a time, in seconds.
func (c *localCache) has(counter *sluice.Rule, requests uint32, key string, now int64) bool {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := localCacheKey{counter, requests, key}
	until, ok := s.until[k]
	if ok && now < until {
		c.hits.Add(1)
		return true
	}
	if ok {
		s.drop(k)
		c.expired.Add(1)
	}
	c.misses.Add(1)
	return false
}

// add remembers that a count is over its limit until then.
func (c *localCache) add(counter *sluice.Rule, requests uint32, key string, until int64) {
	s := c.shard(key)
	size := localCacheEntry + len(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if size > s.maxBytes {
		return
	}
	k := localCacheKey{counter, requests, key}
	if _, ok := s.until[k]; ok {
		s.drop(k) // to write to it would make the map keep this key's text, which is not ours
		c.overwritten.Add(1)
	}
	for old := range s.until { // any will do
		if s.bytes+size <= s.maxBytes {
			break
		}
		s.drop(old)
		c.evicted.Add(1)
	}
	k.key = strings.Clone(key)
	s.until[k] = until
	s.bytes += size
}

func (s *localCacheShard) drop(k localCacheKey) {
	delete(s.until, k)
	s.bytes -= localCacheEntry + len(k.key)
}

// gauges are the reference's statistics of its cache.
func (c *localCache) gauges(yield func(name string, value uint64)) {
	entries := 0
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		entries += len(s.until)
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
