// Package shares bounds the use of a shared resource per name, such as connections per client address.
package shares

import (
	"hash/maphash"
	"sync"
)

// Counter counts by name. Names with a count of 0 take no memory. It is safe for concurrent use.
type Counter[K comparable] struct {
	max    int
	seed   maphash.Seed
	shards [16]shard[K] // reduce contention between names
}

type shard[K comparable] struct {
	mu   sync.Mutex
	have map[K]int // never 0
}

// NewCounter returns a counter with a maximum per name.
func NewCounter[K comparable](maximum int) *Counter[K] {
	c := &Counter[K]{max: maximum, seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].have = map[K]int{}
	}
	return c
}

func (c *Counter[K]) shard(name K) *shard[K] {
	return &c.shards[maphash.Comparable(c.seed, name)%uint64(len(c.shards))]
}

// Enter increments the count of a name, unless it is at the maximum, and reports whether it did.
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

// Leave decrements the count of a name, after a successful Enter.
func (c *Counter[K]) Leave(name K) {
	s := c.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.have[name]--; s.have[name] <= 0 {
		delete(s.have, name)
	}
}
