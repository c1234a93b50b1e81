package storetest

import (
	"fmt"

	"github.com/sluiceproject/sluice"
)

// grant is an admitted take.
type grant struct {
	at     int64 // in microseconds; for one key never less than that of the previous grant
	cost   int64
	leaves int64 // when it may proceed
}

// bucketHolds checks that every interval has at most Burst plus its refill. Equivalently, the sum of costs minus the
// refill never rises by more than Burst above its lowest value so far, which needs one pass instead of all intervals.
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
			return fmt.Errorf("grant %d: %d/%d more than burst plus refill in an interval that ends there", i, over, window)
		}
	}
	return nil
}

// queueHolds checks that takes leave the queue in order and at least at the distance of the outflow rate.
func queueHolds(l *sluice.Limit, admitted []grant) error {
	for i := 1; i < len(admitted); i++ {
		before, g := admitted[i-1], admitted[i]
		// (leaves - before.leaves + 1) × Count ≥ cost × Window; each time is rounded up to a microsecond
		if (g.leaves-before.leaves+1)*l.Count < before.cost*l.Window.Microseconds() {
			return fmt.Errorf("grant %d leaves %d µs after one of cost %d: too soon for %v", i, g.leaves-before.leaves, before.cost, l)
		}
	}
	return nil
}

// intervalHolds checks that every interval has at most Burst plus Count for each refill that can be in it.
func intervalHolds(l *sluice.Limit, admitted []grant) error {
	window := l.Window.Microseconds()
	return everyInterval(admitted, func(length int64) int64 { return l.Burst + l.Count*(length/window+1) })
}

// windowHolds checks that no aligned window has more than Count, and no interval more than boundaryHolds permits.
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
			return fmt.Errorf("grant %d: %d in one window, limit %d", i, counts[number], l.Count)
		}
	}
	return nil
}

// boundaryHolds checks that an interval τ has at most Count × (⌈τ/window⌉ + 1), so 2 × Count in up to one window.
func boundaryHolds(l *sluice.Limit, admitted []grant) error {
	window := l.Window.Microseconds()
	return everyInterval(admitted, func(length int64) int64 { return l.Count * (ceilDiv(length+1, window) + 1) })
}

// logHolds checks that no window at any time has more than Count.
func logHolds(l *sluice.Limit, admitted []grant) error {
	return inWindow(l, admitted, l.Count)
}

// counterHolds checks that an interval τ ≤ window has at most Count × (1 + τ/window) + 1, and an aligned window at most
// Count.
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

// subWindowsHold checks that a window has at most Count plus the unweighted part of the oldest sub-window, if that has
// its share of Count. This bound holds for the traffic of the checks, not for any traffic: Count requests in one
// sub-window can hide as many again.
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
			return fmt.Errorf("grant %d: %d within a window, want at most %d", i, sum, most)
		}
	}
	return nil
}

// everyInterval checks every interval that starts and ends with a grant.
func everyInterval(admitted []grant, most func(length int64) int64) error {
	for i := range admitted {
		var sum int64
		for j := i; j < len(admitted); j++ {
			sum += admitted[j].cost
			if length := admitted[j].at - admitted[i].at; sum > most(length) {
				return fmt.Errorf("grants %d to %d: %d within %d µs, want at most %d", i, j, sum, length, most(length))
			}
		}
	}
	return nil
}
