// Package topkeys finds the keys that come most often, in bounded memory however many there are.
//
// A [Sketch] counts by the space-saving method: it keeps so many keys, and a key that it does not know takes the place
// of the one with the smallest count, and that count with it. So a count may be too high, by no more than Entry.Error,
// and never too low; and whoever has more than the size-th part of all that was added is among the kept.
//
// Counts fade: they are halved every minute, so that the top is of the last few minutes.
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

// MaxKey is how many bytes of a key are kept. Keys that differ later are still told apart.
const MaxKey = 1024

// HalfLife is how often counts are halved.
const HalfLife = time.Minute

// shards lets goroutines with different keys pass each other. Each keeps the sketch's size, so that the bound holds even
// if all that is added falls on one of them.
const shards = 8

// Sketch keeps the keys that come most often. It is safe for concurrent use.
type Sketch struct {
	seed   maphash.Seed
	epoch  time.Time
	shards [shards]shard
}

// Entry is a key with its count. The true count, faded as this one, is between Count-Error and Count.
type Entry struct {
	Rule, Key    string
	Count, Error int64
}

// New returns a sketch that finds all keys with more than the size-th part of all that is added. Its memory is that of 8
// times as many keys.
func New(size int) *Sketch {
	s := &Sketch{seed: maphash.MakeSeed(), epoch: time.Now()}
	for i := range s.shards {
		s.shards[i].size = max(1, size)
		s.shards[i].reset()
	}
	return s
}

// Add counts n for the key of a rule. Neither string is kept; nothing is allocated for a key that is known.
func (s *Sketch) Add(rule, key string, n int64) {
	if n <= 0 {
		return
	}
	h := maphash.String(s.seed, key)
	h ^= maphash.String(s.seed, rule) * 0x9E3779B97F4A7C15 // so that rule and key cannot be exchanged
	minute := s.minute()
	d := &s.shards[h%shards]
	d.mu.Lock()
	d.decay(minute)
	d.add(h, rule, key, float64(n))
	d.mu.Unlock()
}

// minute is how often counts were to be halved until now.
func (s *Sketch) minute() int64 { return int64(time.Since(s.epoch) / HalfLife) }

// Top lists at most so many keys, those that came most often first.
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

// Reset forgets everything.
func (s *Sketch) Reset() {
	for i := range s.shards {
		d := &s.shards[i]
		d.mu.Lock()
		d.reset()
		d.mu.Unlock()
	}
}

// shard counts a part of the keys.
type shard struct {
	mu       sync.Mutex // guards the fields below
	size     int
	minute   int64               // up to which counts are halved
	at       map[uint64]*counter // by the hash of rule and key: with a secret seed, two keys never share one
	heap     []*counter          // the smallest count first
	minCount float64             // what a key that is not kept may have counted

	_ [64]byte // the next shard is on a cache line of its own
}

// counter is one key. Its count is a float because halves of it count too; it is exact up to 2^53.
type counter struct {
	hash         uint64
	rule         string
	key          []byte // reused by the next key that takes this place
	count, error float64
	heapIndex    int // in the heap
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

// admit makes room for a key, with what it may have counted before.
func (d *shard) admit(h uint64, rule, key string) *counter {
	var e *counter
	if len(d.heap) < d.size {
		e = &counter{heapIndex: len(d.heap), count: d.minCount}
		d.heap = append(d.heap, e)
		d.rise(e.heapIndex)
	} else {
		e = d.heap[0]
		delete(d.at, e.hash)
		d.minCount = e.count // which is never less than it was
	}
	e.count, e.error = d.minCount, d.minCount
	e.hash, e.key = h, append(e.key[:0], key[:min(len(key), MaxKey)]...)
	if e.rule != rule {
		e.rule = strings.Clone(rule)
	}
	d.at[h] = e
	return e
}

// decay halves all counts for each minute that has passed. Halving leaves the heap in order. Keys of which next to nothing
// is left are dropped, so that a quiet sketch is an empty one.
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
	slices.SortFunc(d.heap, func(a, b *counter) int { return cmp.Compare(a.count, b.count) }) // which is a heap too
	for i, e := range d.heap {
		e.heapIndex = i
	}
}

// sink moves a key whose count has grown to its place.
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

// rise moves a key that is new at the end to its place.
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
