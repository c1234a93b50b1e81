package ruletest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// heldRequest is a request without a response yet. It holds permits until then.
type heldRequest struct {
	ends      time.Time
	renewed   time.Time
	permitTTL time.Duration
	takes     []sluice.Take // takes that renew its permits
	due       []sluice.Take // takes that settle it with the response
}

// hold keeps the permits of a request until its response, and settles it then.
func (r *runner) hold(ctx context.Context, m *rules.MatchResult, ds []sluice.Decision, q *Request) error {
	h := heldRequest{ends: r.now.Add(q.Duration), renewed: r.now, due: settlement(m, ds, q)}
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
	if q.Duration <= 0 {
		return r.release(ctx, &h)
	}
	r.held = append(r.held, h)
	return nil
}

// setPermitRetryAfter sets the retry time of denials by concurrency limits to that of the middleware, because the end
// of a request is unknown.
func setPermitRetryAfter(takes []sluice.Take, ds []sluice.Decision) {
	for i := range takes {
		if takes[i].EffectiveLimit().Algorithm == sluice.Concurrency {
			ds[i].RetryAfter = min(ds[i].RetryAfter, time.Second)
		}
	}
}

// advance moves the clock: requests that end until then release their permits, and others renew them every TTL/3. Only
// the last renewal before now has an effect.
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
