package sluice_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
)

// A blocked key stays blocked while the store is unavailable, for the duration last seen: in the instance that blocked
// it, and in instances that saw a denial or a peek. An unblocked key is not blocked.
func TestBlocksOutliveTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerSecond(5)})
		var all [3]*sluice.Limiter
		for i := range all {
			all[i] = sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}))
		}
		for _, key := range []string{"k", "lifted"} {
			if err := all[0].Block(t.Context(), key, time.Hour); err != nil {
				t.Fatal(err)
			}
			if d := mustAllow(t, all[1], key, 1); d.Allowed {
				t.Errorf("%+v", d)
			}
			if d, err := all[2].Peek(t.Context(), key); err != nil || d.Allowed {
				t.Errorf("%+v %v", d, err)
			}
		}
		if err := all[0].Block(t.Context(), "lifted", 0); err != nil {
			t.Fatal(err)
		}
		pause(2 * time.Second) // longer than entries of the deny cache live
		for _, l := range all {
			if d := mustAllow(t, l, "lifted", 1); !d.Allowed {
				t.Errorf("%+v", d)
			}
		}
		s.disturb(refuses)
		for i, l := range all {
			if d := mustAllow(t, l, "k", 1); d.Allowed || d.Source != sluice.SourceFailLocal || d.RetryAfter < 59*time.Minute {
				t.Errorf("process %d: a blocked key: %+v", i, d)
			}
			if d := mustAllow(t, l, "lifted", 1); !d.Allowed {
				t.Errorf("process %d: a key that is not blocked: %+v", i, d)
			}
		}
		pause(time.Hour)
		for i, l := range all {
			if d := mustAllow(t, l, "k", 1); !d.Allowed {
				t.Errorf("process %d: the block has ended: %+v", i, d)
			}
		}
	})
}

// Local fallback starts from the remaining quota after a settlement.
func TestSettlementsOutliveTheStore(t *testing.T) {
	for actual, want := range map[int64]int64{150: 850, 500: 500, 0: 1000, 700: 300} {
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerDay(1000).WithAlgorithm(sluice.FixedWindow)})
			l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}))
			r, err := l.Reserve(t.Context(), "k", 500)
			if err != nil || !r.Allowed {
				t.Fatal(r, err)
			}
			if err := r.Settle(t.Context(), actual); err != nil {
				t.Fatal(err)
			}
			s.disturb(refuses)
			if d, err := l.Peek(t.Context(), "k"); err != nil || d.Source != sluice.SourceFailLocal || d.Remaining != want {
				t.Errorf("500 reserved and %d used: %+v %v, want %d left", actual, d, err, want)
			}
		})
	}
}
