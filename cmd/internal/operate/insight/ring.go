package insight

import "math"

// cell counts the decisions of one slot of time.
type cell struct{ allowed, denied uint32 }

func (c *cell) add(allowed, denied int64) {
	c.allowed = uint32(min(int64(c.allowed)+allowed, math.MaxUint32))
	c.denied = uint32(min(int64(c.denied)+denied, math.MaxUint32))
}

const (
	fineSlots, fineMinutes     = 120, 1  // two hours by the minute
	coarseSlots, coarseMinutes = 144, 10 // a day by ten minutes
)

// ring counts decisions in the last slots of time. The slot of a minute is minute / every.
type ring struct {
	cells []cell
	every int64
	last  int64 // the newest slot
}

// forward makes the slot of a minute the newest one.
func (r *ring) forward(minute int64) *cell {
	slot := minute / r.every
	n := int64(len(r.cells))
	for next := max(r.last+1, slot-n+1); next <= slot; next++ {
		r.cells[next%n] = cell{}
	}
	r.last = max(r.last, slot)
	return &r.cells[r.last%n]
}

// since returns the cells from a minute on, the oldest first, at most all.
func (r *ring) since(minute int64) []cell {
	n := min(r.last-minute/r.every+1, int64(len(r.cells)))
	all := make([]cell, 0, max(n, 0))
	for slot := r.last - n + 1; slot <= r.last; slot++ {
		all = append(all, r.cells[slot%int64(len(r.cells))])
	}
	return all
}

// span is a run of cells.
type span struct{ from, slots int }

// densest returns the shortest run of cells with at least share of all denials.
func densest(all []cell, share float64) span {
	var total uint64
	for _, c := range all {
		total += uint64(c.denied)
	}
	want := uint64(math.Ceil(share * float64(total)))
	best := span{0, len(all) + 1}
	var denied uint64
	for from, to := 0, 0; to < len(all) && want > 0; to++ {
		for denied += uint64(all[to].denied); denied >= want; from++ {
			if n := to - from + 1; n < best.slots {
				best = span{from, n}
			}
			denied -= uint64(all[from].denied)
		}
	}
	if best.slots > len(all) {
		return span{}
	}
	return best
}
