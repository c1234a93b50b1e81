package table

import (
	"math/bits"
	"sync/atomic"

	"github.com/sluiceproject/sluice/internal/step"
)

// The sketch counts the keys for which the table has no room, in a fixed number of cells: a count-min sketch of
// buckets. Each key has a cell in each of four rows, and a cell contains the time at which its bucket is full again.
// The minimum of a key's four cells is at least as late as the key's own bucket would be, because other keys only move
// a shared cell later: the sketch may count too much and never too little.
//
// All kinds of limits are counted as buckets here. For windows and logs it is a bucket that admits no more than the
// limit in any interval of a window's length. A key moves from the sketch to the table only when it has been idle for
// so long that it is fully reset. Filters record which keys are in the sketch: see used_keys.go.
//
// A bucket with an initial level gets that size, because it is not certain here which of its keys are new. One that
// starts empty gets a size of 1, and its first request only starts it.
//
// Limits that recover in seconds and limits that recover in weeks have separate bands, so that a flood on a weekly
// quota does not fill the cells of a per-second limit for a week.

const (
	rows      = 4
	bands     = 4
	cellScale = 6 // a cell's unit is 1/64 microsecond

	day = 24 * 3600 * 1_000_000 // microseconds
)

type sketch struct {
	until    atomic.Int64    // in microseconds; after it no key is in the sketch
	cells    []atomic.Uint64 // bands × rows × width, in the region and so resident only when used; always part of the memory limit
	width    uint64
	usedKeys usedKeys
}

func (k *sketch) init(maxBytes int64) {
	k.width = uint64(min(max(maxBytes/16, 1<<16), 16<<20)) / 8 / rows / bands
}

func (k *sketch) bytes() int64 { return int64(k.width) * rows * bands * 8 }

// busy reports whether any key may be counted in the sketch.
func (k *sketch) busy(now int64) bool { return now < k.until.Load() }

// bucket is a limit as counted in the sketch, in 1/64 microseconds.
type bucket struct {
	unitNum, unitDen uint64 // a unit of cost drains in unitNum/unitDen
	fill             uint64 // fill time
	size             int64
	hold             int64 // how long a key must have been full until its own state is fully reset, in microseconds
	empty            bool  // a key that is not in the sketch starts empty
	band             uint64
}

func bucketOf(p *step.Params) bucket {
	b := bucket{size: p.Count, unitNum: uint64(p.Length) << cellScale, unitDen: uint64(p.Count)}
	switch p.Kind {
	case step.Bucket:
		b.size = p.Burst
		if p.HasInitial {
			b.size, b.empty, b.hold = max(1, p.Initial), p.Initial == 0, day
		}
	case step.Interval:
		b.size = min(p.Count, p.Burst)
		b.hold = p.Length * (p.Burst/p.Count + 1)
	case step.Counter, step.Slices:
		b.hold = 2 * p.Length
	default:
		b.hold = p.Length
	}
	if p.Kind != step.Bucket && b.size > 0 {
		// Half at once and the rest over the window: no interval of a window's length admits more than the limit.
		limit := b.size
		b.size = (limit + 1) / 2
		b.unitDen = uint64(limit - b.size + 1)
	}
	if b.size > 0 {
		hi, lo := bits.Mul64(uint64(b.size), b.unitNum)
		b.fill, _ = bits.Div64(hi, lo, b.unitDen)
	}
	length := b.fill >> cellScale
	if p.HasInitial { // its state is kept for longer than those of buckets with the same fill time
		length += uint64(b.hold)
	}
	// 4 s, 1 h, 6 weeks
	switch length := bits.Len64(length); {
	case length <= 22:
	case length <= 32:
		b.band = 1
	case length <= 42:
		b.band = 2
	default:
		b.band = 3
	}
	return b
}

// cost returns how much later a take moves a cell, rounded up.
func (b *bucket) cost(n int64) uint64 {
	hi, lo := bits.Mul64(uint64(n), b.unitNum)
	q, r := bits.Div64(hi, lo, b.unitDen)
	if r > 0 {
		q++
	}
	return q
}

// cell returns the key's cell in a row.
func (k *sketch) cell(h Hash, band, row uint64) *atomic.Uint64 {
	x := h.tag ^ bits.RotateLeft64(h.spot, int(16*row))
	i, _ := bits.Mul64(x*0x9E3779B97F4A7C15, k.width)
	return &k.cells[(band*rows+row)*k.width+i]
}

// fullAt returns an upper bound of when the key's bucket is full, in 1/64 microseconds.
func (k *sketch) fullAt(h Hash, b *bucket) uint64 {
	if k.until.Load() == 0 {
		return 0
	}
	least := k.cell(h, b.band, 0).Load()
	for row := uint64(1); row < rows; row++ {
		least = min(least, k.cell(h, b.band, row).Load())
	}
	return least
}

// mayCount reports whether a key that is not in the table may have been counted in the sketch, and so must not start
// from zero.
func (k *sketch) mayCount(h Hash, p *step.Params, now int64) bool {
	if !k.busy(now) {
		return false
	}
	b := bucketOf(p)
	return k.usedKeys.has(h, b.band, now) && k.fullAt(h, &b) > uint64(max(0, now-b.hold))<<cellScale
}

// take decides a request by the sketch, and charges it unless it is a dry run. The key's segment must be locked.
func (k *sketch) take(h Hash, p *step.Params, now int64, r step.Request) step.Answer {
	b := bucketOf(p)
	a := step.Answer{At: now}
	if b.size == 0 || r.Cost > p.Limit() {
		a.Never = true
		return a
	}
	cost := max(1, r.Cost)
	at := uint64(now) << cellScale
	full := at
	if k.usedKeys.has(h, b.band, now) {
		full = max(full, k.fullAt(h, &b))
	} else if b.empty {
		full += b.fill
		if !r.DryRun && (r.Cost > 0 || r.Begin) {
			k.charge(h, &b, now, full)
		}
	}
	remaining := func(full uint64) int64 {
		left := at + b.fill
		if left <= full {
			return 0
		}
		hi, lo := bits.Mul64(left-full, b.unitDen)
		n, _ := bits.Div64(hi, lo, b.unitNum)
		return min(int64(n), b.size)
	}
	a.Remaining = remaining(full)
	reset := b.hold
	if p.HasInitial {
		reset = 0 // callers expect the time until the bucket is full
	}
	a.ResetAfter = int64((full-at)>>cellScale) + reset
	if cost > b.size { // within the limit, but more than the sketch can grant
		a.RetryAfter = max(1, p.Length)
		return a
	}
	next := full + b.cost(cost)
	if next > at+b.fill && !(next-(at+b.fill) <= uint64(cost) && full == at) { // a full bucket grants its size despite rounding
		a.RetryAfter = int64((next-(at+b.fill))>>cellScale) + 1
		if r.Charge && !r.DryRun {
			k.charge(h, &b, now, at+b.fill)
		}
		return a
	}
	a.Allowed = true
	if r.Cost == 0 {
		return a
	}
	a.Granted = r.Cost
	a.Remaining = remaining(next)
	if !r.DryRun {
		k.charge(h, &b, now, next)
		a.ResetAfter = int64((next-at)>>cellScale) + 1 + reset
	}
	return a
}

// charge moves the key's cells to full, unless they are later already.
func (k *sketch) charge(h Hash, b *bucket, now int64, full uint64) {
	end := int64(full>>cellScale) + 1 + b.hold
	k.usedKeys.add(h, b.band, now, end)
	for {
		was := k.until.Load()
		if was >= end || k.until.CompareAndSwap(was, end) {
			break
		}
	}
	for row := range uint64(rows) {
		cell := k.cell(h, b.band, row)
		for {
			was := cell.Load()
			if was >= full || cell.CompareAndSwap(was, full) {
				break
			}
		}
	}
}
