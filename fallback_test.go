package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/sluiceproject/sluice"
)

// brokenStore fails every call. It replaces an unavailable server.
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

// Invalid calls and cancelled contexts return errors, whatever the fail mode.
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

// A limit that was not charged because another rule denied the request reports its current state without the charge: a
// peek right after reports the same. That holds for local fallback, leases and estimates.
func TestUnchargedLimits(t *testing.T) {
	bucket, window := sluice.PerHour(5), sluice.PerHour(5).WithAlgorithm(sluice.FixedWindow)
	for name, tt := range map[string]struct {
		down           bool // the store is unavailable
		counted, other sluice.Rule
	}{
		"local":         {true, sluice.Rule{Limit: bucket, OnFailure: sluice.FailLocal}, sluice.Rule{Limit: bucket, OnFailure: sluice.FailClosed}},
		"local, window": {true, sluice.Rule{Limit: window, OnFailure: sluice.FailLocal}, sluice.Rule{Limit: bucket, OnFailure: sluice.FailClosed}},
		"eventual":      {false, sluice.Rule{Limit: bucket, Accuracy: sluice.AccuracyEventual}, sluice.Rule{Limit: bucket}},
		"lease":         {false, sluice.Rule{Limit: bucket, Accuracy: sluice.AccuracyLease}, sluice.Rule{Limit: bucket}},
		"exact":         {false, sluice.Rule{Limit: bucket}, sluice.Rule{Limit: bucket}},
	} {
		for _, spent := range []int64{0, 2} {
			t.Run(fmt.Sprint(name, " ", spent), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newFar()
					tt.counted.Name, tt.other.Name = "counted", "other"
					counted, other := mustRule(t, tt.counted), mustRule(t, tt.other)
					l := sluice.Must(sluice.NewWithRules(s, nil))
					defer l.Close(background)
					decide := func(takes ...sluice.Take) []sluice.Decision {
						out := make([]sluice.Decision, len(takes))
						if _, err := l.Decide(background, takes, out); err != nil {
							t.Fatal(err)
						}
						return out
					}
					if tt.down {
						s.disturb(refuses)
					} else {
						decide(sluice.Take{Rule: other, Key: "k", Cost: 5})
						decide(sluice.Take{Rule: counted, Key: "k", Cost: 1}) // the key is leased or estimated from now on
						spent++
					}
					if spent > 0 && tt.down {
						decide(sluice.Take{Rule: counted, Key: "k", Cost: spent})
					} else if spent > 1 {
						decide(sluice.Take{Rule: counted, Key: "k", Cost: spent - 1})
					}
					before := decide(sluice.Take{Rule: counted, Key: "k"})[0]
					got := decide(sluice.Take{Rule: counted, Key: "k", Cost: 1}, sluice.Take{Rule: other, Key: "k", Cost: 1})
					after := decide(sluice.Take{Rule: counted, Key: "k"})[0]
					if d := got[0]; !d.Allowed || got[1].Allowed || d.Granted != 0 || d.Remaining != before.Remaining || d.ResetAfter != before.ResetAfter {
						t.Errorf("%+v, want the numbers of %+v", d, before)
					}
					if after.Remaining != before.Remaining {
						t.Errorf("after it %+v, before %+v", after, before)
					}
				})
			})
		}
	}
}
