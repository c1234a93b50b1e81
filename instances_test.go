package sluice_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
)

// An instance that has not read the number of instances admits 1 per key and window during local fallback. The number,
// once read, grants nothing that was already used.
func TestUnknownNumberOfProcesses(t *testing.T) {
	for _, algorithm := range []sluice.Algorithm{sluice.FixedWindow, sluice.SlidingWindowLog, sluice.SlidingWindowCounter, sluice.TokenBucket, sluice.LeakyBucket} {
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			n := 0
			rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.Limit{Count: 50, Window: 24 * time.Hour, Algorithm: algorithm}})
			l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}, sluice.WithInstances(func() int { return n })))
			if d := mustAllow(t, l, "used", 40); !d.Allowed {
				t.Fatalf("%+v", d)
			}
			s.disturb(refuses)
			admitted := func(key string) (n int) {
				for range 100 {
					if mustAllow(t, l, key, 1).Allowed {
						n++
					}
				}
				return n
			}
			if got := admitted("new"); got != 1 {
				t.Errorf("%v: %d were admitted of a new key, want 1", algorithm, got)
			}
			if got := admitted("used"); got > 1 {
				t.Errorf("%v: %d were admitted of a key that was used, want at most 1", algorithm, got)
			}
			n = 2
			if got := admitted("used"); got > 5 {
				t.Errorf("%v: %d were admitted by one of two processes when 10 were left", algorithm, got)
			}
			if got := admitted("new"); got > 24 {
				t.Errorf("%v: %d more were admitted by one of two processes, of 50", algorithm, got)
			}
			if got := admitted("newer"); got != 25 {
				t.Errorf("%v: %d of 50 were admitted by one of two processes, want 25", algorithm, got)
			}
		})
	}
}

// When an instance leaves, the remaining ones do not get more than the remaining quota.
func TestFewerProcesses(t *testing.T) {
	for _, algorithm := range []sluice.Algorithm{sluice.FixedWindow, sluice.SlidingWindowLog, sluice.SlidingWindowCounter, sluice.TokenBucket, sluice.LeakyBucket} {
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			n := 2
			limit := sluice.Limit{Count: 50, Window: 24 * time.Hour, Algorithm: algorithm}
			rule := mustRule(t, sluice.Rule{Name: "r", Limit: limit})
			l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}, sluice.WithInstances(func() int { return n })))
			if d := mustAllow(t, l, "k", 40); !d.Allowed {
				t.Fatalf("%+v", d)
			}
			s.disturb(refuses)
			admit := func(key string, want int64) {
				t.Helper()
				got := int64(0)
				for range 100 {
					got += mustAllow(t, l, key, 1).Granted
				}
				if got > want {
					t.Errorf("%v: %d were admitted, want at most %d", algorithm, got, want)
				}
			}
			n = 1
			admit("k", 10)
			admit("new", 50)
		})
	}
}
