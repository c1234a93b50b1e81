package ruletest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// flight is a request that has not been answered yet, and holds slots until it is.
type flight struct {
	ends    time.Time
	renewed time.Time
	lease   time.Duration
	takes   []sluice.Take // that renew what it holds
	due     []sluice.Take // that settle it when it is answered
}

// fly has a request hold its slots until it is answered, and settles it then.
func (r *runner) fly(ctx context.Context, m *rules.MatchResult, ds []sluice.Decision, q *Request) error {
	f := flight{ends: r.now.Add(q.Takes), renewed: r.now, due: settlement(m, ds, q)}
	for i, t := range m.Takes {
		lease := t.EffectiveLimit().Window
		if t.EffectiveLimit().Algorithm != sluice.Concurrency || ds[i].Granted <= 0 {
			continue
		}
		t.Key, t.Cost, t.Receipt = strings.Clone(t.Key), ds[i].Granted, ds[i].Receipt
		f.takes = append(f.takes, t)
		if f.lease == 0 || lease < f.lease {
			f.lease = lease
		}
	}
	if len(f.takes) == 0 && len(f.due) == 0 {
		return nil
	}
	if q.Takes <= 0 {
		return r.release(ctx, &f)
	}
	r.flights = append(r.flights, f)
	return nil
}

// tellFlight has denials of what is in flight say what middleware tells callers: nobody knows when a request will end.
func tellFlight(takes []sluice.Take, ds []sluice.Decision) {
	for i := range takes {
		if takes[i].EffectiveLimit().Algorithm == sluice.Concurrency {
			ds[i].RetryAfter = min(ds[i].RetryAfter, time.Second)
		}
	}
}

// land moves the clock: requests that end until then release what they hold, and others renew it each third of the
// lease. Of their renewals the last before now is all that anybody sees.
func (r *runner) land(ctx context.Context, now time.Time) error {
	last := func(f *flight) time.Time {
		if !f.ends.After(now) {
			return f.ends
		}
		every := max(1, f.lease/3)
		return f.renewed.Add(now.Sub(f.renewed) / every * every)
	}
	slices.SortStableFunc(r.flights, func(a, b flight) int { return last(&a).Compare(last(&b)) })
	flying := r.flights[:0]
	for i := range r.flights {
		f := r.flights[i]
		ended := !f.ends.After(now)
		r.now = last(&f)
		var err error
		switch {
		case ended:
			err = r.release(ctx, &f)
		case len(f.takes) > 0 && r.now.After(f.renewed):
			err = r.renew(ctx, &f)
		}
		if err != nil {
			return err
		}
		if !ended {
			flying = append(flying, f)
		}
	}
	r.flights, r.now = flying, now
	return nil
}

func (r *runner) renew(ctx context.Context, f *flight) error {
	f.renewed = r.now
	out := make([]sluice.Decision, len(f.takes))
	if err := r.store.Apply(ctx, f.takes, out); err != nil {
		return err
	}
	for i := range out {
		f.takes[i].Receipt = out[i].Receipt
	}
	return nil
}

func (r *runner) release(ctx context.Context, f *flight) error {
	if len(f.due) > 0 {
		if err := r.limiter.Settle(ctx, f.due); err != nil {
			return err
		}
	}
	if len(f.takes) == 0 {
		return nil
	}
	for i := range f.takes {
		f.takes[i].Cost = -f.takes[i].Cost
	}
	return r.store.Apply(ctx, f.takes, make([]sluice.Decision, len(f.takes)))
}
