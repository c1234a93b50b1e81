package recommend

import (
	"math"
	"math/bits"
	"slices"
)

// Point is a point of the frontier: a rate, and the smallest burst at which enough keys are denied nothing.
type Point struct {
	Rate    Rate
	Burst   int64
	Backlog float64 // largest backlog, before it is rounded up to Burst
	// Quantiles are bursts over the counted keys, in the order of quantileShares.
	Quantiles []int64
	Fence     int64 // keys that need more at wideRate times the rate are outliers; 0 if there are too few keys
	Outliers  int
	// WholeBurst denies nothing to any key in the whole log, outliers and crawlers included; WholeBacklog is not rounded up.
	WholeBurst   int64
	WholeBacklog float64

	most int64 // Backlog, as in the type backlog
}

// quantileShares are the shares of keys of [Point.Quantiles].
var quantileShares = []float64{0.5, 0.9, 0.99, 0.999, 1}

// scan reads the blocks that train, or those that validate.
type scan struct {
	t      *Traffic
	blocks blocks
	part   int // training or validation
}

// key calls each for the requests of a key in the blocks of the scan, with the time among them and the number of the block.
func (s *scan) key(k int, each func(i uint32, micros int64, block int)) {
	for _, i := range s.t.of(k) {
		if micros, ok := s.blocks.when(s.t.micros[i], s.part); ok {
			each(i, micros, s.blocks.of(micros))
		}
	}
}

// meter measures what a key needs in a sequence of requests: a burst, or permits.
type meter interface {
	request(micros, cost, duration int64)
	need() int64  // in units of the limit, rounded up
	exact() int64 // in finer units, for sorting
	reset()
}

// meters measure what keys need.
type meters struct {
	whole meter // in all blocks of a scan
	part  meter // in one block
	wide  meter // in all blocks, at wideRate times the rate: a key is an outlier only if it needs too much even then
}

// wideRate keeps clients that are steady, and not much above the rate, from being outliers at that rate.
const wideRate = 4

func bucketMeters(r Rate) meters {
	whole, part, wide := newBacklog(r), newBacklog(r), newBacklog(Rate{wideRate * r.Count, r.Window})
	return meters{&whole, &part, &wide}
}

// measure returns the exact needs of all keys, their needs at the wide rate, and the fence above which those are outliers.
func (s *scan) measure(m meters, counted func(key int) bool) (exact, wide []int64, fence int64) {
	whole, part := m.whole, m.part
	exact, wide = make([]int64, len(s.t.names)), make([]int64, len(s.t.names))
	var spread spread
	for k := range s.t.names {
		whole.reset()
		part.reset()
		m.wide.reset()
		at := -1
		s.key(k, func(i uint32, micros int64, block int) {
			if block != at && at >= 0 {
				if counted(k) {
					spread.add(at, part.need())
				}
				part.reset()
			}
			at = block
			cost, duration := s.t.costOf(i), s.t.durationOf(i)
			whole.request(micros, cost, duration)
			part.request(micros, cost, duration)
			m.wide.request(micros, cost, duration)
		})
		if at >= 0 && counted(k) {
			spread.keys++
			spread.add(at, part.need())
		}
		exact[k], wide[k] = whole.exact(), m.wide.need()
	}
	return exact, wide, spread.fence()
}

func (b *backlog) request(micros, cost, _ int64) { b.add(micros, cost) }
func (b *backlog) need() int64                   { return b.burst() }
func (b *backlog) exact() int64                  { return b.most }
func (b *backlog) reset()                        { b.empty() }

// spread finds what a typical key needs in a typical block: the median over the blocks of the median over the keys of a block.
// So neither many keys in fewer than half of the blocks, nor fewer than half of the keys in all blocks, move it far.
type spread struct {
	keys   int // that have requests
	blocks map[int]*blockNeeds
}

type blockNeeds struct {
	keys   int
	counts [buckets]int32
}

func (s *spread) add(block int, need int64) {
	if need == 0 {
		return
	}
	if s.blocks == nil {
		s.blocks = make(map[int]*blockNeeds)
	}
	b := s.blocks[block]
	if b == nil {
		b = &blockNeeds{}
		s.blocks[block] = b
	}
	b.keys++
	b.counts[bucketOf(need)]++
}

// Numbers of the fence.
const (
	fenceFactor    = 16
	fenceBlockKeys = 4 // a block with fewer keys has no median
)

// fence returns 16 × (what a typical key needs in a typical block + 1). Keys that need more are outliers. It is 0 if there are
// too few keys to tell.
func (s *spread) fence() int64 {
	if s.keys < outlierKeys {
		return 0
	}
	var medians []int64
	for _, b := range s.blocks {
		if b.keys >= fenceBlockKeys {
			medians = append(medians, b.median())
		}
	}
	if len(medians) == 0 {
		return 0
	}
	slices.Sort(medians)
	return mulSat(fenceFactor, medians[len(medians)/2]+1)
}

// median returns the need of the middle key, the lower one of two, to a precision of 1/8.
func (b *blockNeeds) median() int64 {
	rank, seen := (b.keys+1)/2, 0
	for bucket, count := range b.counts {
		if seen += int(count); seen >= rank {
			return bucketLow(bucket)
		}
	}
	return 1
}

// buckets is the number of buckets of 63-bit numbers.
const buckets = 16 + 59*8

// bucketOf returns the bucket of a number: exact below 16, then 8 buckets for each power of two.
func bucketOf(n int64) int {
	if n < 16 {
		return int(n)
	}
	power := 63 - bits.LeadingZeros64(uint64(n))
	return 16 + (power-4)*8 + int(n>>(power-3))&7
}

func bucketLow(bucket int) int64 {
	if bucket < 16 {
		return int64(bucket)
	}
	power := (bucket-16)/8 + 4
	return (8 + int64((bucket-16)%8)) << (power - 3)
}

// point returns the point of the frontier at a rate. ok is false if the numbers are too large to be exact.
func (a *analysis) point(r Rate) (p Point, ok bool) {
	exact, wide, fence := a.training.measure(bucketMeters(r), a.counted)
	whole := newBacklog(r)
	p = Point{Rate: r, Fence: fence}
	var counted []int64
	for k, level := range exact {
		switch {
		case level == 0 || !a.counted(k): // not in the training blocks, or a crawler
		case level == math.MaxInt64:
			return p, false
		case fence > 0 && wide[k] > fence:
			p.Outliers++
		default:
			counted = append(counted, level)
		}
	}
	if len(counted) == 0 {
		return p, false
	}
	slices.Sort(counted)
	n := len(counted)
	p.most = counted[n-1-a.mayDeny(n)]
	up := func(level int64) int64 { return (&backlog{length: whole.length, most: level}).burst() }
	p.Burst, p.Backlog = up(p.most), float64(p.most)/float64(whole.length)
	for _, share := range quantileShares {
		p.Quantiles = append(p.Quantiles, up(counted[int(math.Ceil(share*float64(n)))-1]))
	}
	whole.reset()
	for k := range a.t.names {
		whole.level, whole.last = 0, math.MinInt64
		for _, i := range a.t.of(k) {
			whole.add(a.t.micros[i], a.t.costOf(i))
		}
	}
	p.WholeBurst, p.WholeBacklog = whole.burst(), whole.largest()
	return p, !whole.overflowed()
}

// outlierKeys is the least number of keys among which a key can be an outlier.
const outlierKeys = 8

// mayDeny returns how many of n clients may be denied something.
func (a *analysis) mayDeny(n int) int { return n * (wholeShare - a.Untouched) / wholeShare }

// peak returns the most that one key can be allowed in one second.
func (p *Point) peak() float64 { return float64(p.Burst) + p.Rate.PerSecond() }

// knee returns the point at which one key can be allowed least in a second: burst + rate × 1 s. Of equal points it is the
// one with the lowest rate. Points above the capacity do not count; it is nil if all are.
func knee(points []Point, capacity float64) *Point {
	var best *Point
	for i := range points {
		p := &points[i]
		if capacity > 0 && p.peak() > capacity {
			continue
		}
		if best == nil || p.peak() < best.peak()*(1-1e-12) {
			best = p
		}
	}
	return best
}

func (t *Traffic) durationOf(i uint32) int64 {
	if len(t.duration) == 0 {
		return 0
	}
	return t.duration[i]
}
