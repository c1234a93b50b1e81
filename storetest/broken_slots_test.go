package storetest

import (
	"context"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/storekit"
)

func holds(t *sluice.Take) bool { return t.EffectiveLimit().Algorithm == sluice.Concurrency }

// keepingSlots looks up releases by a receipt that is one microsecond off.
func keepingSlots(t *sluice.Take) {
	if holds(t) && t.Cost < 0 {
		t.Receipt--
	}
}

// freeingAny counts permits without their receipts.
func freeingAny(h *hooked) {
	h.apply = func(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
		for i := range takes {
			t := &takes[i]
			if err := storekit.Validate(t); err != nil || !holds(t) || t.Cost >= 0 {
				continue
			}
			h.mu.Lock()
			if m, ok := h.meter(t).(*permitMeter); ok && len(m.permits) > 0 {
				t.Receipt = m.permits[0].at
			}
			h.mu.Unlock()
		}
		return h.Reference.Apply(ctx, takes, out)
	}
}

// renewingInWords reports that a permit is renewed, and does not renew it.
func renewingInWords(h *hooked) {
	h.apply = func(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
		for i := range takes {
			if t := &takes[i]; t.Rule != nil && holds(t) && t.Cost > 0 && t.Receipt != 0 {
				t.Cost, t.Receipt = 0, 0
			}
		}
		if err := h.Reference.Apply(ctx, takes, out); err != nil {
			return err
		}
		for i := range takes {
			out[i].Allowed = out[i].Allowed || takes[i].Cost == 0 && holds(&takes[i])
		}
		return nil
	}
}

func lastingTwice(r *sluice.Rule) {
	if r.Limit.Algorithm == sluice.Concurrency {
		r.Limit.Window *= 2
	}
}
