package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sluiceproject/sluice"
)

// brokenStore cannot answer. It stands for a server that is away; no real one is needed to not answer.
type brokenStore struct{ err error }

func (s brokenStore) Apply(context.Context, []sluice.Take, []sluice.Decision) error { return s.err }

func TestFailModes(t *testing.T) {
	down := brokenStore{fmt.Errorf("dial: %w", sluice.ErrUnavailable)}
	for mode, want := range map[sluice.FailMode]struct {
		allowed []bool
		source  sluice.Source
	}{
		sluice.FailOpen:   {[]bool{true, true, true}, sluice.SourceFailOpen},
		sluice.FailClosed: {[]bool{false, false, false}, sluice.SourceFailClosed},
		sluice.FailLocal:  {[]bool{true, true, false}, sluice.SourceFailLocal},
	} {
		failures := 0
		rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerHour(2), OnFailure: mode})
		l := sluice.Must(sluice.NewWithRules(down, []*sluice.Rule{rule}, sluice.WithEvents(sluice.Events{
			OnStoreError: func(_ context.Context, err error) {
				failures++
				if !errors.Is(err, sluice.ErrUnavailable) {
					t.Error(err)
				}
			},
		})))
		for i, allowed := range want.allowed {
			d := mustAllow(t, l, "k", 1)
			if d.Allowed != allowed || d.Source != want.source || !d.Source.Degraded() {
				t.Errorf("%v: request %d: %+v", want.source, i, d)
			}
			if !d.Allowed && d.RetryAfter <= 0 {
				t.Errorf("%v: a denial without a time to retry: %+v", want.source, d)
			}
		}
		if failures != len(want.allowed) {
			t.Errorf("%d failures reported", failures)
		}
	}
}

// A mistake and a caller who left are errors, whatever the fail mode.
func TestErrorsThatDoNotFailOpen(t *testing.T) {
	rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerHour(2), OnFailure: sluice.FailOpen})
	wrong := sluice.Must(sluice.NewWithRules(brokenStore{sluice.ErrInvalid}, []*sluice.Rule{rule}))
	if _, err := wrong.Allow(background, "k"); !errors.Is(err, sluice.ErrInvalid) {
		t.Errorf("a mistake: %v", err)
	}
	ctx, cancel := context.WithCancel(background)
	cancel()
	left := sluice.Must(sluice.NewWithRules(brokenStore{context.Canceled}, []*sluice.Rule{rule}))
	if _, err := left.Allow(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who left: %v", err)
	}
	if err := left.Reset(background, "k"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("reset on a store that cannot: %v", err)
	}
}
