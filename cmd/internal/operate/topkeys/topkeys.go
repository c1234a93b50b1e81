// Package topkeys finds the most frequent keys (heavy hitters) in bounded memory.
//
// A [Sketch] implements the space-saving algorithm: it stores a fixed number of keys. A new key replaces the one with the
// smallest count and inherits that count. So a count may be too high by at most Entry.Error and is never too low. Every key
// with more than 1/size of all counts is in the sketch.
//
// Counts decay: they are halved every minute, so that the top keys are those of the last few minutes.
package topkeys

import (
	"cmp"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// MaxKey is the number of bytes of a key that are stored. Keys that differ only after them are still distinct.
const MaxKey = 1024

// HalfLife is the interval at which counts are halved.
const HalfLife = time.Minute

// shards is the number of locks, so that goroutines with different keys rarely contend. Each shard has the full size of
// the sketch, so that the error bound holds even if all keys fall into one shard.
const shards = 8

// Sketch counts the most frequent keys. It is safe for concurrent use.
type Sketch struct {
	seed   maphash.Seed
	epoch  time.Time
	shards [shards]shard
}

// Entry is a key with its count. The true count, with the same decay, is between Count-Error and Count.
type Entry struct {
	Rule, Key    string
	Count, Error int64
}

// New returns a sketch that finds all keys with more than 1/size of all counts. It stores at most 8 × size keys.
func New(size int) *Sketch {
	s := &Sketch{seed: maphash.MakeSeed(), epoch: time.Now()}
	for i := range s.shards {
		s.shards[i].size = max(1, size)
		s.shards[i].reset()
	}
	return s
}

// Add adds n to the count of the key of a rule. It keeps no reference to the strings and does not allocate for a key that is
// in the sketch.
func (s *Sketch) Add(rule, key string, n int64) {
	if n <= 0 {
		return
	}
	h := maphash.String(s.seed, key)
	h ^= maphash.String(s.seed, rule) * 0x9E3779B97F4A7C15 // so that swapping rule and key gives another hash
	minute := s.minute()
	d := &s.shards[h%shards]
	d.mu.Lock()
	d.decay(minute)
	d.add(h, rule, key, float64(n))
	d.mu.Unlock()
}

// minute returns the number of half-lives since the sketch was created.
func (s *Sketch) minute() int64 { return int64(time.Since(s.epoch) / HalfLife) }

// Top returns at most most keys, the most frequent first.
func (s *Sketch) Top(most int) []Entry {
	var all []Entry
	minute := s.minute()
	for i := range s.shards {
		d := &s.shards[i]
		d.mu.Lock()
		d.decay(minute)
		for _, e := range d.heap {
			all = append(all, e.entry())
		}
		d.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error), strings.Compare(a.Rule, b.Rule), strings.Compare(a.Key, b.Key))
	})
	return all[:max(0, min(most, len(all)))]
}

// Reset removes all keys.
func (s *Sketch) Reset() {
	for i := range s.shards {
		d := &s.shards[i]
		d.mu.Lock()
		d.reset()
		d.mu.Unlock()
	}
}

// shard counts the keys of one range of hashes.
type shard struct {
	mu       sync.Mutex // guards the fields below
	size     int
	minute   int64               // of the last decay
	at       map[uint64]*counter // by the hash of rule and key; because of the random seed, collisions are negligible
	heap     []*counter          // the smallest count first
	minCount float64             // maximum count of a key that is not in the sketch

	_ [64]byte // keeps the next shard on another cache line
}

// counter is the count of one key. It is a float because of halving; it is exact up to 2^53.
type counter struct {
	hash         uint64
	rule         string
	key          []byte // reused for the next key in this counter
	count, error float64
	heapIndex    int
}

func (e *counter) entry() Entry {
	count := math.Ceil(e.count)
	return Entry{e.rule, string(e.key), int64(count), int64(count - math.Floor(e.count-e.error))}
}

func (d *shard) reset() {
	d.at, d.heap, d.minCount = make(map[uint64]*counter), nil, 0
}

func (d *shard) add(h uint64, rule, key string, n float64) {
	e := d.at[h]
	if e == nil {
		e = d.admit(h, rule, key)
	}
	e.count += n
	d.sink(e.heapIndex)
}

// admit adds a key, if necessary in place of the one with the smallest count, with the count that it may have had before.
func (d *shard) admit(h uint64, rule, key string) *counter {
	var e *counter
	if len(d.heap) < d.size {
		e = &counter{heapIndex: len(d.heap), count: d.minCount}
		d.heap = append(d.heap, e)
		d.rise(e.heapIndex)
	} else {
		e = d.heap[0]
		delete(d.at, e.hash)
		d.minCount = e.count // never decreases here
	}
	e.count, e.error = d.minCount, d.minCount
	e.hash, e.key = h, append(e.key[:0], key[:min(len(key), MaxKey)]...)
	if e.rule != rule {
		e.rule = strings.Clone(rule)
	}
	d.at[h] = e
	return e
}

// decay halves all counts for each minute that has passed. Halving preserves the order of the heap. Keys with a count near
// 0 are removed, so that a sketch without traffic becomes empty.
func (d *shard) decay(minute int64) {
	passed := minute - d.minute
	if passed <= 0 {
		return
	}
	d.minute = minute
	factor := math.Ldexp(1, -int(min(passed, 64)))
	d.minCount *= factor
	live := d.heap[:0]
	for _, e := range d.heap {
		e.count, e.error = e.count*factor, e.error*factor
		if e.count < 0.5 {
			d.minCount = max(d.minCount, e.count)
			delete(d.at, e.hash)
			continue
		}
		live = append(live, e)
	}
	clear(d.heap[len(live):])
	d.heap = live
	slices.SortFunc(d.heap, func(a, b *counter) int { return cmp.Compare(a.count, b.count) }) // a sorted slice is a heap
	for i, e := range d.heap {
		e.heapIndex = i
	}
}

// sink restores the heap order after the count at i has grown.
func (d *shard) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(d.heap) {
			return
		}
		if right := child + 1; right < len(d.heap) && d.heap[right].count < d.heap[child].count {
			child = right
		}
		if d.heap[i].count <= d.heap[child].count {
			return
		}
		d.swap(i, child)
		i = child
	}
}

// rise restores the heap order after a key was added at i.
func (d *shard) rise(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if d.heap[parent].count <= d.heap[i].count {
			return
		}
		d.swap(i, parent)
		i = parent
	}
}

func (d *shard) swap(i, j int) {
	d.heap[i], d.heap[j] = d.heap[j], d.heap[i]
	d.heap[i].heapIndex, d.heap[j].heapIndex = i, j
}
