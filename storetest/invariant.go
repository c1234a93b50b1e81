package storetest

import (
	"fmt"

	"github.com/sluiceproject/sluice"
)

// grant is something that was admitted.
type grant struct {
	at     int64 // microseconds; of all that one key was granted, never less than before
	cost   int64
	leaves int64 // when it may go ahead
}

// bucketHolds: in every interval at most Burst plus what flows in during it. The sum of costs less the inflow must
// never rise by more than Burst above its lowest value so far, which is one pass instead of all intervals.
func bucketHolds(l *sluice.Limit, admitted []grant) error {
	window, origin := l.Window.Microseconds(), int64(0)
	if len(admitted) > 0 {
		origin = admitted[0].at
	}
	var sum, lowest int64 // in cost × window
	for i, g := range admitted {
		level := sum - (g.at-origin)*l.Count
		if i == 0 || level < lowest {
			lowest = level
		}
		sum += g.cost * window
		if over := level + g.cost*window - lowest - l.Burst*window; over > 0 {
			return fmt.Errorf("grant %d: %d/%d more than burst and inflow together in an interval that ends there", i, over, window)
		}
	}
	return nil
}

// queueHolds: departures in order and at the outflow's distance.
func queueHolds(l *sluice.Limit, admitted []grant) error {
	for i := 1; i < len(admitted); i++ {
		before, g := admitted[i-1], admitted[i]
		// (leaves - before.leaves + 1) × Count ≥ cost × Window; each moment is rounded up to a microsecond
		if (g.leaves-before.leaves+1)*l.Count < before.cost*l.Window.Microseconds() {
			return fmt.Errorf("grant %d leaves %d µs after one of cost %d: too close for %v", i, g.leaves-before.leaves, before.cost, l)
		}
	}
	return nil
}

// intervalHolds: in every interval at most Burst plus Count for each boundary that can lie in it.
func intervalHolds(l *sluice.Limit, admitted []grant) error {
	window := l.Window.Microseconds()
	return everyInterval(admitted, func(length int64) int64 { return l.Burst + l.Count*(length/window+1) })
}

// windowHolds: no aligned window holds more than Count, and no interval more than the boundary lets pass.
func windowHolds(l *sluice.Limit, admitted []grant) error {
	if err := alignedHolds(l, admitted); err != nil {
		return err
	}
	return boundaryHolds(l, admitted)
}

func alignedHolds(l *sluice.Limit, admitted []grant) error {
	counts := map[int64]int64{}
	for i, g := range admitted {
		number := floorDiv(g.at, l.Window.Microseconds())
		if counts[number] += g.cost; counts[number] > l.Count {
			return fmt.Errorf("grant %d: %d in one window, the limit is %d", i, counts[number], l.Count)
		}
	}
	return nil
}

// boundaryHolds: in τ at most Count × (⌈τ/window⌉ + 1), so twice Count in up to a window.
func boundaryHolds(l *sluice.Limit, admitted []grant) error {
	window := l.Window.Microseconds()
	return everyInterval(admitted, func(length int64) int64 { return l.Count * (ceilDiv(length+1, window) + 1) })
}

// logHolds: in no window at any instant more than Count.
func logHolds(l *sluice.Limit, admitted []grant) error {
	return inWindow(l, admitted, l.Count)
}

// counterHolds: in τ ≤ window at most Count × (1 + τ/window) + 1, and in an aligned one at most Count.
func counterHolds(l *sluice.Limit, admitted []grant) error {
	if err := alignedHolds(l, admitted); err != nil {
		return err
	}
	window := l.Window.Microseconds()
	return everyInterval(admitted, func(length int64) int64 {
		if length > window {
			return 1 << 62
		}
		return l.Count + (l.Count*length+window-1)/window + 1
	})
}

// subWindowsHold: in a window at most Count and what the weighted sub-window hides if that holds its part of Count. It is
// the bound of the traffic that the checks have, not of any: all of Count in one sub-window can hide as much again.
func subWindowsHold(l *sluice.Limit, admitted []grant) error {
	return inWindow(l, admitted, l.Count+ceilDiv(l.Count, int64(l.SubWindows))+1)
}

// inWindow checks every window that ends with a grant.
func inWindow(l *sluice.Limit, admitted []grant, most int64) error {
	first, sum := 0, int64(0)
	for i, g := range admitted {
		sum += g.cost
		for admitted[first].at <= g.at-l.Window.Microseconds() {
			sum -= admitted[first].cost
			first++
		}
		if sum > most {
			return fmt.Errorf("grant %d: %d within a window, at most %d may be", i, sum, most)
		}
	}
	return nil
}

// everyInterval checks every interval that begins and ends with a grant.
func everyInterval(admitted []grant, most func(length int64) int64) error {
	for i := range admitted {
		var sum int64
		for j := i; j < len(admitted); j++ {
			sum += admitted[j].cost
			if length := admitted[j].at - admitted[i].at; sum > most(length) {
				return fmt.Errorf("grants %d to %d: %d within %d µs, at most %d may be", i, j, sum, length, most(length))
			}
		}
	}
	return nil
}
