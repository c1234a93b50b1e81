package envoyratelimit

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluiceproject/sluice"
)

// localCache is a deny cache: it stores the counts that are over a limit until their windows end, so that they need no store
// call. A count that is over one limit may be within a larger one, so an entry contains the largest limit that the count is
// over. A refund through this process removes the entry; other processes keep theirs until the window ends.
//
// Its size is bounded: when it is full, a new entry evicts others. A miss calls the store.
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
	removals uint64 // number of entries removed by refunds
}

type localCacheKey struct {
	counter *sluice.Rule // the same for all counters of a name
	key     string
}

// overLimit is the largest limit that a count is over, and the end of its window as Unix time in seconds.
type overLimit struct {
	until    int64
	requests uint32
}

// localCacheEntry is the approximate size of an entry without its key, in bytes.
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

// has reports whether the count is over its limit at the Unix time now. removals is an argument of add.
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

// add adds an entry for a count. It does nothing if there was a refund since the call of has, because the count may be from
// before the refund.
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
		s.drop(k) // assigning to the existing entry would store this key, whose memory is reused by the caller
		c.overwritten.Add(1)
	}
	for old := range s.over { // evicts any entries
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

// remove removes the entry of a count that was refunded, so that the store decides again.
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

// gauges yields the reference's statistics of the local cache.
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
