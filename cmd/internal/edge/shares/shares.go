// Package shares counts what each of many names has of something that all share, so that none has more than its share.
package shares

import (
	"hash/maphash"
	"sync"
)

// Counter counts by name. Names that have nothing take no memory. All methods may be called concurrently.
type Counter[K comparable] struct {
	max    int
	seed   maphash.Seed
	shards [16]shard[K] // so that requests of different names do not wait for each other
}

type shard[K comparable] struct {
	mu   sync.Mutex
	have map[K]int // never 0
}

// NewCounter returns a counter that gives each name at most most.
func NewCounter[K comparable](most int) *Counter[K] {
	c := &Counter[K]{max: most, seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].have = map[K]int{}
	}
	return c
}

func (c *Counter[K]) shard(name K) *shard[K] {
	return &c.shards[maphash.Comparable(c.seed, name)%uint64(len(c.shards))]
}

// Enter gives the name one more and reports whether it had less than its share.
func (c *Counter[K]) Enter(name K) bool {
	s := c.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.have[name]
	if n >= c.max {
		return false
	}
	s.have[name] = n + 1
	return true
}

// Leave takes back what Enter gave.
func (c *Counter[K]) Leave(name K) {
	s := c.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.have[name]--; s.have[name] <= 0 {
		delete(s.have, name)
	}
}
