package memstore_test

import (
	"maps"
	"slices"
	"testing"
)

// checkBucket fails unless every interval [s, t] admitted at most limit + limit*(t-s)/window: invariant I4. If c(t) is
// the total admitted up to t, that is c(t) - r*t minus the minimum of c(s) - r*s before, which one pass can compute.
func checkBucket(t *testing.T, admitted map[int64]int64, limit, window int64) {
	t.Helper()
	times := slices.Sorted(maps.Keys(admitted))
	var sum, least int64
	for i, at := range times {
		since := at - times[0]
		if before := sum*window - limit*since; i == 0 || before < least {
			least = before
		}
		sum += admitted[at]
		if over := sum*window - limit*since - least; over > limit*window {
			t.Fatalf("an interval that ends at %d admitted %d too many", at, (over-limit*window)/window)
		}
	}
}

// checkLog fails unless every interval (t-window, t] admitted at most limit: invariant I1.
func checkLog(t *testing.T, admitted map[int64]int64, limit, window int64) {
	t.Helper()
	times := slices.Sorted(maps.Keys(admitted))
	var sum int64
	first := 0
	for _, at := range times {
		sum += admitted[at]
		for times[first] <= at-window {
			sum -= admitted[times[first]]
			first++
		}
		if sum > limit {
			t.Fatalf("the window that ends at %d admitted %d of %d", at, sum, limit)
		}
	}
}
