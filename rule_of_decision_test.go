package sluice_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// Every decision has its rule; with several rules, the one that denied.
func TestDecisionNamesRule(t *testing.T) {
	hour := mustRule(t, sluice.Rule{Name: "hour", Limit: sluice.PerHour(2)})
	day := mustRule(t, sluice.Rule{Name: "day", Limit: sluice.PerDay(100)})
	shadow := mustRule(t, sluice.Rule{Name: "shadow", Limit: sluice.PerDay(1), Shadow: true})
	lease := mustRule(t, sluice.Rule{Name: "lease", Limit: sluice.PerHour(1000), Accuracy: sluice.AccuracyLease})
	for name, c := range map[string]struct {
		store sluice.Store
		rules []*sluice.Rule
		want  *sluice.Rule // the most restrictive rule, which finally denies
	}{
		"one rule":      {memstore.New(), []*sluice.Rule{hour}, hour},
		"several rules": {memstore.New(), []*sluice.Rule{day, hour}, hour},
		"shadow":        {memstore.New(), []*sluice.Rule{shadow, hour}, hour},
		"fallback":      {brokenStore{sluice.ErrUnavailable}, []*sluice.Rule{day, hour}, hour},
		"far":           {&farStore{Store: memstore.New()}, []*sluice.Rule{day, hour}, hour},
		"far, one rule": {&farStore{Store: memstore.New()}, []*sluice.Rule{hour}, hour},
		"lease":         {&farStore{Store: memstore.New()}, []*sluice.Rule{lease}, lease},
	} {
		var reported []*sluice.Rule
		l := sluice.Must(sluice.NewWithRules(c.store, c.rules, sluice.WithEvents(sluice.Events{
			OnDecision: func(_ context.Context, _ sluice.Take, d sluice.Decision) { reported = append(reported, d.Rule) },
		})))
		for range 3 {
			d := mustAllow(t, l, "k", 1)
			if d.Rule == nil || !d.Allowed && d.Rule != c.want {
				t.Errorf("%s: %+v", name, d)
			}
		}
		if d, err := l.Peek(background, "k"); err != nil || d.Rule == nil {
			t.Errorf("%s: Peek: %+v, %v", name, d, err)
		}
		if r, err := l.Reserve(background, "k", 1); err != nil || r.Rule == nil || !r.Allowed && r.Rule != c.want {
			t.Errorf("%s: Reserve: %+v, %v", name, r, err)
		}
		for i, rule := range reported {
			if rule == nil {
				t.Errorf("%s: event %d names no rule", name, i)
			}
		}
		if len(reported) < 4*len(c.rules) {
			t.Errorf("%s: %d events", name, len(reported))
		}
	}
	if l := sluice.Must(sluice.NewWithRules(memstore.New(), []*sluice.Rule{hour})); true {
		l.Suspend("hour")
		if d := mustAllow(t, l, "k", 1); d.Rule != hour || d.Source != sluice.SourceSuspended {
			t.Errorf("suspended: %+v", d)
		}
	}
}

// The error names the value that was not created, or the zero value is harmless to inspect.
func TestZeroValues(t *testing.T) {
	_, err := sluice.New(memstore.New(), "api", sluice.Limit{})
	var limitErr *sluice.LimitError
	if !errors.As(err, &limitErr) || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), `rule "api": sluice: limit: Count: the limit is the zero Limit: use PerMinute(100)`) {
		t.Errorf("New with a zero Limit: %v", err)
	}
	for name, limit := range map[string]*sluice.Limit{
		"take": new(sluice.Take).EffectiveLimit(), "bucket": new(sluice.Bucket).EffectiveLimit(),
	} {
		if limit == nil || *limit != (sluice.Limit{}) || limit.Max() != 0 || limit.String() == "" {
			t.Errorf("%s: the limit is %v", name, limit)
		}
	}
}
