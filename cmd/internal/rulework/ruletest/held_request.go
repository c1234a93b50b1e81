package ruletest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// heldRequest is a request that has not been answered yet, and holds slots until it is.
type heldRequest struct {
	ends      time.Time
	renewed   time.Time
	permitTTL time.Duration
	takes     []sluice.Take // that renew what it holds
	due       []sluice.Take // that settle it when it is answered
}

// hold has a request hold its slots until it is answered, and settles it then.
func (r *runner) hold(ctx context.Context, m *rules.MatchResult, ds []sluice.Decision, q *Request) error {
	h := heldRequest{ends: r.now.Add(q.Takes), renewed: r.now, due: settlement(m, ds, q)}
	for i, t := range m.Takes {
		lease := t.EffectiveLimit().Window
		if t.EffectiveLimit().Algorithm != sluice.Concurrency || ds[i].Granted <= 0 {
			continue
		}
		t.Key, t.Cost, t.Receipt = strings.Clone(t.Key), ds[i].Granted, ds[i].Receipt
		h.takes = append(h.takes, t)
		if h.permitTTL == 0 || lease < h.permitTTL {
			h.permitTTL = lease
		}
	}
	if len(h.takes) == 0 && len(h.due) == 0 {
		return nil
	}
	if q.Takes <= 0 {
		return r.release(ctx, &h)
	}
	r.held = append(r.held, h)
	return nil
}

// setPermitRetryAfter has denials of what is in flight say what middleware tells callers: nobody knows when a request will end.
func setPermitRetryAfter(takes []sluice.Take, ds []sluice.Decision) {
	for i := range takes {
		if takes[i].EffectiveLimit().Algorithm == sluice.Concurrency {
			ds[i].RetryAfter = min(ds[i].RetryAfter, time.Second)
		}
	}
}

// advance moves the clock: requests that end until then release what they hold, and others renew it each third of the
// lease. Of their renewals the last before now is all that anybody sees.
func (r *runner) advance(ctx context.Context, now time.Time) error {
	last := func(h *heldRequest) time.Time {
		if !h.ends.After(now) {
			return h.ends
		}
		every := max(1, h.permitTTL/3)
		return h.renewed.Add(now.Sub(h.renewed) / every * every)
	}
	slices.SortStableFunc(r.held, func(a, b heldRequest) int { return last(&a).Compare(last(&b)) })
	flying := r.held[:0]
	for i := range r.held {
		h := r.held[i]
		ended := !h.ends.After(now)
		r.now = last(&h)
		var err error
		switch {
		case ended:
			err = r.release(ctx, &h)
		case len(h.takes) > 0 && r.now.After(h.renewed):
			err = r.renew(ctx, &h)
		}
		if err != nil {
			return err
		}
		if !ended {
			flying = append(flying, h)
		}
	}
	r.held, r.now = flying, now
	return nil
}

func (r *runner) renew(ctx context.Context, h *heldRequest) error {
	h.renewed = r.now
	out := make([]sluice.Decision, len(h.takes))
	if err := r.store.Apply(ctx, h.takes, out); err != nil {
		return err
	}
	for i := range out {
		h.takes[i].Receipt = out[i].Receipt
	}
	return nil
}

func (r *runner) release(ctx context.Context, h *heldRequest) error {
	if len(h.due) > 0 {
		if err := r.limiter.Settle(ctx, h.due); err != nil {
			return err
		}
	}
	if len(h.takes) == 0 {
		return nil
	}
	for i := range h.takes {
		h.takes[i].Cost = -h.takes[i].Cost
	}
	return r.store.Apply(ctx, h.takes, make([]sluice.Decision, len(h.takes)))
}
