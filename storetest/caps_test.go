package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
)

// TestOvershoot checks that a store that admits one too many passes if it declares that, and only then.
func TestOvershoot(t *testing.T) {
	for _, c := range named("Exact") {
		if err := c.run(&opener{open: overAdmitting, caps: Caps{Overshoot: 1}}); err != nil {
			t.Errorf("%s, with Overshoot 1: %v", c.name, err)
		}
		if err := c.run(&opener{open: overAdmitting}); err == nil {
			t.Errorf("%s, without Caps: no error found", c.name)
		}
	}
}

// TestOwnClock runs the checks for a store on the wall clock.
func TestOwnClock(t *testing.T) {
	open := onClock(func(time.Time) time.Time { return time.Now() })
	Run(t, Harness{
		Open: func(_ testing.TB, clock *Clock) sluice.Store { return open(clock) },
		Caps: Caps{RealClock: true},
	})
}

// splitting applies takes bucket by bucket and refunds them after a denial. In between, other callers see too much
// usage.
func splitting(h *hooked) {
	h.apply = func(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
		veto := -1
		for i := range takes {
			if err := h.Reference.Apply(ctx, takes[i:i+1], out[i:i+1]); err != nil {
				return err
			}
			if !out[i].Allowed && !takes[i].Rule.Shadow && takes[i].Cost != 0 {
				veto = i
			}
		}
		for i := range takes {
			if veto < 0 || !out[i].Allowed || takes[i].Cost == 0 || takes[i].Rule.ChargeDenied {
				continue
			}
			back := takes[i]
			back.Cost, back.Receipt, back.MinGrant, back.IdempotencyID = -out[i].Granted, out[i].Receipt, 0, 0
			var left [1]sluice.Decision
			if err := h.Reference.Apply(ctx, []sluice.Take{back}, left[:]); err != nil {
				return err
			}
			out[i].Granted, out[i].Remaining, out[i].ResetAfter = 0, left[0].Remaining, left[0].ResetAfter
		}
		return nil
	}
}

// TestSplitKeys checks that such a store passes the checks that NonAtomicKeys leaves: at rest it has charged all or
// nothing.
func TestSplitKeys(t *testing.T) {
	caps := Caps{NonAtomicKeys: true, Overshoot: 0}
	for _, name := range []string{"Transfer", "AllOrNothing", "Exact", "OddNames", "PeerDefects/kong_counted_before_decided_caddy_zones_charged_in_sequence"} {
		for _, c := range named(name) {
			if err := c.run(&opener{open: tampered(splitting), caps: caps}); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}

// TestDeclared checks that every field of Caps leaves out the checks that need it, and that no check is left out for a
// store with zero Caps.
func TestDeclared(t *testing.T) {
	for caps, name := range map[Caps]string{
		{RealClock: true}: "Transcripts/token_bucket", {NoIdempotency: true}: "OnceByID", {NoAdmin: true}: "Transcripts/blocks",
		{Overshoot: 1}: "Linearizable/fixed_window", {NonAtomicKeys: true}: "History",
	} {
		for _, c := range named(name) {
			if c.missing(caps) == "" {
				t.Errorf("%s runs for a store with %+v", name, caps)
			}
		}
	}
	for _, c := range checks() {
		if why := c.missing(Caps{}); why != "" {
			t.Errorf("%s is left out for a store with zero Caps: %s", c.name, why)
		}
	}
}
