package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
)

// TestOvershoot: a store that admits a little too much passes if it says so, and only then.
func TestOvershoot(t *testing.T) {
	for _, c := range named("Exact") {
		if err := c.run(&opener{open: overAdmitting, caps: Caps{Overshoot: 1}}); err != nil {
			t.Errorf("%s, one more declared: %v", c.name, err)
		}
		if err := c.run(&opener{open: overAdmitting}); err == nil {
			t.Errorf("%s, nothing declared: finds nothing wrong", c.name)
		}
	}
}

// TestOwnClock runs what can be asked of a store that is on the time of day.
func TestOwnClock(t *testing.T) {
	open := onClock(func(time.Time) time.Time { return time.Now() })
	Run(t, Harness{
		Open: func(_ testing.TB, clock *Clock) sluice.Store { return open(clock) },
		Caps: Caps{RealClock: true},
	})
}

// splitting applies takes bucket by bucket and gives back on a denial. In between, others see too much.
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

// TestSplitKeys: at rest such a store has charged all or nothing; while callers are about it need not look so.
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

// TestDeclared: each thing that can be declared leaves out what needs it, and nothing is left out of a store that
// declares nothing.
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
			t.Errorf("%s is left out of a store that promises everything: %s", c.name, why)
		}
	}
}
