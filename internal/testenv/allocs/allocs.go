// Package allocs counts allocations in tests, also under the race detector.
package allocs

import (
	"slices"
	"testing"
)

const runs = 200

// Of returns the number of allocations of a call of f with filled pools: the first quartile of 200 calls. An average
// would be too high, because under the race detector a [sync.Pool] drops a quarter of the objects that are put back. f
// is called 400 times.
func Of(f func()) float64 {
	counts := make([]float64, runs)
	for i := range counts {
		counts[i] = testing.AllocsPerRun(1, f)
	}
	slices.Sort(counts)
	return counts[runs/4]
}
