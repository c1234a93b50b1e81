package recommend

import (
	"hash/fnv"
	"slices"
	"strings"
)

// Arrival is a request of recorded traffic.
type Arrival struct {
	Micros   int64  // start in microseconds since 1970
	Key      string // key that the limit counts by; "" for a limit that all requests share
	Cost     int64  // below 1 counts as 1, the least that a rule can charge
	Duration int64  // microseconds until the response; below 0 if unknown
	Crawler  bool   // the user agent names a crawler; a key is one if all of its requests are a crawler's
}

// Bounds of [Traffic]. They are variables for tests.
var (
	maxArrivals = 1 << 22 // about 120 MB with costs and durations
	maxKeys     = 1 << 20
	minKeys     = 1 << 10 // a sample of keys is not made smaller
)

// Traffic is recorded traffic in bounded memory. Above maxKeys keys, or maxArrivals requests of many keys, it continues with
// half of the keys, chosen by a hash, and all of their requests: bursts of keys stay exact, and quantiles become those of a
// sample. Requests of few keys above maxArrivals are dropped: the rest of the time is not used.
type Traffic struct {
	ids      map[string]uint32
	names    []string
	crawlers []bool
	key      []uint32
	micros   []int64
	cost     []int64 // empty while all costs are 1
	duration []int64 // empty while none is known

	halvings  int
	Dropped   int64 // requests after the bound, of which nothing is known
	Late      int64 // requests with a time before the previous one, counted at its time
	CheapCost int64 // requests with a cost below 1

	order []uint32 // requests by key, then by time
	first []uint32 // per key, its first index in order; one more at the end
}

// Add adds a request. Requests must be added in the order of their times.
func (t *Traffic) Add(a Arrival) {
	if t.ids == nil {
		t.ids = make(map[string]uint32)
	}
	if t.Dropped > 0 || !t.sampled(a.Key) {
		t.Dropped += min(t.Dropped, 1)
		return
	}
	id, known := t.ids[a.Key]
	for len(t.key) >= maxArrivals || !known && len(t.names) >= maxKeys {
		if len(t.names) < 2*minKeys {
			t.Dropped++
			return
		}
		t.halve()
		if !t.sampled(a.Key) {
			return
		}
		id, known = t.ids[a.Key]
	}
	if !known {
		id = uint32(len(t.names))
		name := strings.Clone(a.Key)
		t.ids[name] = id
		t.names, t.crawlers = append(t.names, name), append(t.crawlers, true)
	}
	t.crawlers[id] = t.crawlers[id] && a.Crawler
	t.append(id, a)
}

func (t *Traffic) append(id uint32, a Arrival) {
	if n := len(t.micros); n > 0 && a.Micros < t.micros[n-1] {
		t.Late++
		a.Micros = t.micros[n-1]
	}
	if a.Cost < 1 {
		t.CheapCost++
		a.Cost = 1
	}
	if a.Cost != 1 && len(t.cost) == 0 {
		t.cost = slices.Repeat([]int64{1}, len(t.key))
	}
	if a.Duration > 0 && len(t.duration) == 0 {
		t.duration = make([]int64, len(t.key))
	}
	if a.Cost != 1 || len(t.cost) > 0 {
		t.cost = append(t.cost, a.Cost)
	}
	if a.Duration > 0 || len(t.duration) > 0 {
		t.duration = append(t.duration, max(0, a.Duration))
	}
	t.key, t.micros = append(t.key, id), append(t.micros, a.Micros)
}

// sampled reports whether the key is among the keys that are used.
func (t *Traffic) sampled(key string) bool {
	if t.halvings == 0 {
		return true
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	sum := h.Sum64()
	sum ^= sum >> 33 // the low bits of FNV depend on few bits of the input
	sum *= 0xff51afd7ed558ccd
	sum ^= sum >> 33
	return sum&(1<<t.halvings-1) == 0
}

// halve drops half of the keys and their requests.
func (t *Traffic) halve() {
	t.halvings++
	renamed := make([]int64, len(t.names))
	ids := make(map[string]uint32)
	kept := 0
	for i, name := range t.names {
		if renamed[i] = -1; t.sampled(name) {
			renamed[i] = int64(kept)
			ids[name] = uint32(kept)
			t.names[kept], t.crawlers[kept] = name, t.crawlers[i]
			kept++
		}
	}
	clear(t.names[kept:])
	t.ids, t.names, t.crawlers = ids, t.names[:kept], t.crawlers[:kept]
	n := 0
	for i, k := range t.key {
		if renamed[k] < 0 {
			continue
		}
		t.key[n], t.micros[n] = uint32(renamed[k]), t.micros[i]
		if len(t.cost) > 0 {
			t.cost[n] = t.cost[i]
		}
		if len(t.duration) > 0 {
			t.duration[n] = t.duration[i]
		}
		n++
	}
	t.key, t.micros = t.key[:n], t.micros[:n]
	t.cost, t.duration = t.cost[:min(n, len(t.cost))], t.duration[:min(n, len(t.duration))]
}

// Sample returns 1 if all keys are used, 2 if half of them are, and so on.
func (t *Traffic) Sample() int64 { return 1 << t.halvings }

// Requests returns the number of requests that are used.
func (t *Traffic) Requests() int { return len(t.key) }

func (t *Traffic) costOf(i uint32) int64 {
	if len(t.cost) == 0 {
		return 1
	}
	return t.cost[i]
}

// group sorts the requests by key.
func (t *Traffic) group() {
	t.first = make([]uint32, len(t.names)+1)
	for _, k := range t.key {
		t.first[k+1]++
	}
	for i := range t.names {
		t.first[i+1] += t.first[i]
	}
	next := slices.Clone(t.first)
	t.order = make([]uint32, len(t.key))
	for i, k := range t.key {
		t.order[next[k]] = uint32(i)
		next[k]++
	}
}

// of returns the requests of a key in the order of their times.
func (t *Traffic) of(key int) []uint32 { return t.order[t.first[key]:t.first[key+1]] }

// blocks split the time of the traffic into blocks of equal length. Even ones train, odd ones validate.
type blocks struct{ start, length int64 }

// parts are the blocks that train and those that validate.
const (
	training   = 0
	validation = 1
)

// when returns the time of a request among the blocks of one part, moved together: otherwise a queue would drain, and a bucket
// refill, in the time of the other blocks, whose requests are missing. ok is false for a request of the other part.
func (b blocks) when(micros int64, part int) (moved int64, ok bool) {
	n := int64(b.of(micros))
	return micros - (n+1)/2*b.length, int(n%2) == part
}

func (b blocks) of(micros int64) int      { return int((micros - b.start) / b.length) }
func (b blocks) trains(micros int64) bool { return b.of(micros)%2 == 0 }
