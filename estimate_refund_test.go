package sluice_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
)

// A charge followed by its refund leaves nothing charged, however often and under every accuracy, neither in decisions
// nor at the store. The same holds for calls that another rule denies.
func TestRefundsAddUp(t *testing.T) {
	for name, accuracy := range map[string]sluice.Accuracy{"exact": sluice.AccuracyExact, "eventual": sluice.AccuracyEventual} {
		for _, algorithm := range []sluice.Algorithm{sluice.TokenBucket, sluice.LeakyBucket, sluice.FixedWindow, sluice.SlidingWindowCounter} {
			t.Run(name+"/"+algorithm.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { refundsAddUp(t, accuracy, algorithm) })
			})
		}
	}
}

func refundsAddUp(t *testing.T, accuracy sluice.Accuracy, algorithm sluice.Algorithm) {
	const limit = 50
	s := newFar()
	rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerDay(limit).WithAlgorithm(algorithm), Accuracy: accuracy})
	spent := mustRule(t, sluice.Rule{Name: "spent", Limit: sluice.PerDay(0).WithAlgorithm(sluice.FixedWindow)})
	l := sluice.Must(sluice.NewWithRules(s, nil))
	both := []sluice.Take{{Rule: rule, Key: "k", Cost: 5}, {Rule: spent, Key: "k", Cost: 1}}
	out := make([]sluice.Decision, 2)
	for i := range 400 {
		one := both[:1:1]
		if allowed, err := l.Decide(t.Context(), one, out); err != nil || !allowed {
			t.Fatalf("charge %d: %+v %v", i, out[0], err)
		}
		pause(3 * time.Millisecond)
		back := []sluice.Take{{Rule: rule, Key: "k", Cost: -5}}
		answers := make([]sluice.Decision, 1)
		if err := private.Refund(t.Context(), l, &back, &answers); err != nil || answers[0].Granted != -5 || answers[0].Remaining != limit {
			t.Fatalf("refund %d: %+v %v, want 5 refunded and %d left", i, answers[0], err, limit)
		}
		if allowed, err := l.Decide(t.Context(), both, out); err != nil || allowed {
			t.Fatalf("%+v %v", out, err)
		}
		pause(2 * time.Millisecond)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	look := []sluice.Take{{Rule: rule, Key: "k"}}
	if err := s.Store.Apply(t.Context(), look, out); err != nil || out[0].Remaining != limit {
		t.Errorf("at the store %d are left, want %d (%v)", out[0].Remaining, limit, err)
	}
}
