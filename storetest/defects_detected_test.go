package storetest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
)

func brokenStores() []broken {
	return slices.Concat(brokenCounts(), brokenAnswers(), brokenNames(), brokenCalls())
}

// brokenCounts are stores that count wrongly.
func brokenCounts() []broken {
	return []broken{
		{"admits one too many", overAdmitting, "History SubSecond OddNames KeepsUntil Exact SteppedClock RemainingAdds Linearizable Transfer " +
			"AllOrNothing PeerDefects/go_redisstore_sub_second PeerDefects/redis_cell_sub_second " +
			"PeerDefects/upstash_token_bucket_negative PeerDefects/upstash_sliding_window_overshoot " +
			"PeerDefects/gubernator_leaky_bucket_double PeerDefects/gubernator_month_length"},
		{"charges denied takes", asking(remaking(func(r *sluice.Rule) { r.ChargeDenied = true })), "History AllOrNothing PeerDefects/kong_counted_before_decided_caddy_zones_charged_in_sequence " +
			"PeerDefects/mennanov_flood_locks_out_tyk_denied_requests_recorded Transcripts/several"},
		{"never removes keys", tampered(neverForgetting), "Forgets " +
			"PeerDefects/upstash_cached_window_never_expires_throttled_expiry_apart_from_value"},
		{"removes keys within a second", tampered(shortLived), "SubSecond KeepsUntil ExactMoving/token_bucket PeerDefects/go_redisstore_sub_second " +
			"PeerDefects/redis_cell_sub_second Transcripts/subsecond"},
		{"credits time twice", func(clock *Clock) sluice.Store { return onClock(backwards())(clock) }, "SteppedClock PeerDefects/x_time_rollback PeerDefects/traefik_two_clocks Transcripts/token_bucket"},
		{"rounds to seconds", onClock(func(real time.Time) time.Time { return real.Truncate(time.Second) }), "SubSecond RetryHonest Transcripts/subsecond"},
		{"charges peeks", asking(func(t *sluice.Take) { t.Cost += map[bool]int64{true: 1}[t.Cost == 0] }), "RemainingAdds Cancelled OddCalls Transcripts/odd_costs"},
		{"wraps at 32 bits", asking(wrap32), "RemainingAdds PeerDefects/envoy_hits_addend_wraps Transcripts/odd_costs"},
		{"ignores the previous window", asking(remaking(func(r *sluice.Rule) {
			if r.Limit.Algorithm == sluice.SlidingWindowCounter {
				r.Limit = sluice.Per(r.Limit.Count, r.Limit.Window).WithAlgorithm(sluice.FixedWindow)
			}
		})), "PeerDefects/mennanov_sliding_window_overflow PeerDefects/posthog_previous_window_expires_early " +
			"SteppedClock/sliding_counter Transcripts/sliding_counter"},
		{"ends windows a second late", asking(remaking(func(r *sluice.Rule) { r.Limit.Window += time.Second })), "PeerDefects/llm_proxy_count_leaks_into_next_window Transcripts/fixed_window"},
	}
}

// brokenAnswers are stores that return wrong decisions.
func brokenAnswers() []broken {
	return []broken{
		{"RetryAfter 1 µs too short", answering(func(_ *sluice.Take, d *sluice.Decision) {
			d.RetryAfter = max(0, d.RetryAfter-time.Microsecond)
		}), "SubSecond RetryHonest Transcripts/worked_examples"},
		{"RetryAfter 1 µs too long", answering(func(_ *sluice.Take, d *sluice.Decision) {
			if d.RetryAfter > 0 {
				d.RetryAfter += time.Microsecond
			}
		}), "SubSecond RetryHonest Transcripts/worked_examples"},
		{"ResetAfter too short", answering(func(_ *sluice.Take, d *sluice.Decision) {
			d.ResetAfter = max(0, d.ResetAfter-time.Microsecond)
		}), "RetryHonest/token_bucket RetryHonest/fixed_window RetryHonest/sliding_log Forgets Transcripts/fixed_window"},
		{"Remaining one too high", answering(func(_ *sluice.Take, d *sluice.Decision) {
			if d.Remaining < d.Limit {
				d.Remaining++
			}
		}), "RemainingAdds Linearizable Transcripts/leaky_bucket"},
		{"no Delay", answering(func(_ *sluice.Take, d *sluice.Decision) { d.Delay = 0 }), "SteppedClock/leaky_queue Transcripts/leaky_queue Transcripts/worked_examples"},
		{"no ExceedsLimit", answering(func(_ *sluice.Take, d *sluice.Decision) {
			if d.ExceedsLimit {
				d.ExceedsLimit, d.RetryAfter = false, time.Second
			}
		}), "RemainingAdds Transcripts/odd_costs"},
		{"accepts anything", tampered(func(h *hooked) {
			h.apply = func(_ context.Context, takes []sluice.Take, out []sluice.Decision) error {
				for i := range takes {
					out[i] = sluice.Decision{Allowed: true, Granted: takes[i].Cost, Limit: 10, Remaining: 10, Receipt: 1}
				}
				return nil
			}
		}), "ExactMoving Transcripts"},
	}
}

// brokenNames are stores that mix up buckets, or use two for one.
func brokenNames() []broken {
	return []broken{
		{"joins rule and key with a colon", asking(joined()), "OddNames PeerDefects/httprate_joined_keys"},
		{"ignores rules", asking(remaking(func(r *sluice.Rule) { r.Name = "r" })), "OddNames AllOrNothing OnceByID"},
		{"resets when a limit changes", asking(func(t *sluice.Take) { t.Key += "\x00" + t.EffectiveLimit().String() }), "PeerDefects/go_limiter_set_resets_to_full Transcripts/changed_limits Changes"},
		{
			"keeps the time until full when a limit changes", tampered(keepingTime),
			"Changes/minute_to_day Changes/day_to_minute Changes/month_to_second Changes/minute_to_day_plain Changes/larger_and_back " +
				"Changes/smaller Changes/negative_balance Changes/queue Changes/plans Transcripts/changed_limits",
		},
		{"cuts keys at 250 bytes", asking(fold(cut(250))), "OddNames"},
		{"cuts keys at NUL", asking(fold(untilNUL)), "OddNames"},
		{"keeps released permits", asking(keepingSlots), "Permits/Contention Transcripts/concurrency"},
		{"releases another permit", tampered(freeingAny), "Permits/ReleasedTwice"},
		{"does not renew", tampered(renewingInWords), "Permits/Renewed Transcripts/concurrency"},
		{"permits expire too late", asking(remaking(lastingTwice)), "Permits/Expiry Permits/Renewed"},
		{"folds case", asking(fold(strings.ToUpper)), "OddNames"},
		{"trims keys", asking(fold(strings.TrimSpace)), "OddNames"},
		{"uses one byte of keys", asking(fold(cut(1))), "OddNames Isolated"},
	}
}

// brokenCalls are stores that do not do as requested.
func brokenCalls() []broken {
	return []broken{
		{"applies takes one by one", tampered(oneByOne), "Transfer AllOrNothing OddCalls " +
			"PeerDefects/kong_counted_before_decided_caddy_zones_charged_in_sequence Transcripts/several"},
		{"ignores IDs", asking(func(t *sluice.Take) { t.IdempotencyID = 0 }), "OnceByID PeerDefects/rate_limit_redis_retry_charges_twice Transcripts/ids"},
		{"ignores contexts", tampered(func(h *hooked) {
			h.apply = func(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
				return h.Reference.Apply(context.WithoutCancel(ctx), takes, out)
			}
		}), "Cancelled"},
		{"reads, then writes", racing, "Linearizable NoRace"},
		{"enforces shadow rules", asking(remaking(func(r *sluice.Rule) { r.Shadow = false })), "History Transcripts/several"},
		{"does not reset", tampered(func(h *hooked) {
			h.reset = func(context.Context, sluice.Bucket) error { return nil }
		}), "Buckets Linearizable Transcripts/blocks"},
		{"resets without the hash tag", tampered(func(h *hooked) {
			h.reset = func(ctx context.Context, b sluice.Bucket) error {
				if b.HashTag != "" {
					return nil
				}
				return h.Reference.Reset(ctx, b)
			}
		}), "Buckets"},
		{"resets only the rule's limit", tampered(func(h *hooked) {
			h.reset = func(ctx context.Context, b sluice.Bucket) error {
				return h.Reference.Reset(ctx, sluice.Bucket{Rule: b.Rule, Key: b.Key})
			}
		}), "Buckets"},
		{"refunds expired usage", tampered(func(h *hooked) {
			h.ask = func(t *sluice.Take) {
				if t.Cost < 0 {
					t.Receipt = h.clock.Now().UnixMicro()
				}
			}
		}), "PeerDefects/gubernator_negative_hits_mint Transcripts/give_back"},
		{"refunds nothing", asking(func(t *sluice.Take) {
			if t.Cost < 0 {
				t.Cost = 0
			}
		}), "PeerDefects/x_time_cancel_refunds_less Transcripts/give_back Transcripts/fixed_window_soft"},
		{"does not settle", asking(func(t *sluice.Take) {
			if t.Receipt != 0 && t.Settles {
				t.Cost, t.Settles = 0, false
			}
		}), "Settles"},
		{
			"leaves no marks", asking(func(t *sluice.Take) { t.Settles = t.Settles && t.Receipt != 0 }),
			"Settles/below_the_estimate Settles/two_in_flight Settles/the_second_first Settles/others_keep_it_from_expiring " +
				"Settles/six_of_10000 Settles/interval Settles/40_in_32_marks Settles/plain_takes_between",
		},
		{
			"refunds by age", asking(func(t *sluice.Take) { t.Settles = t.Settles && t.Receipt == 0 }),
			"Settles/two_in_flight Settles/others_keep_it_from_expiring Settles/six_of_10000 Settles/forgets_marks Settles/concurrency",
		},
		{"no partial grants", asking(func(t *sluice.Take) { t.MinGrant = 0 }), "PeerDefects/redis_rate_allow_at_most_fraction Transcripts/odd_costs"},
	}
}

// named returns the checks with a name, or below it.
func named(name string) []check {
	return slices.DeleteFunc(checks(), func(c check) bool { return c.name != name && !strings.HasPrefix(c.name, name+"/") })
}

// TestSuiteBites runs the checks against stores with known defects. The listed checks must fail.
func TestSuiteBites(t *testing.T) {
	for _, b := range brokenStores() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			for _, name := range strings.Fields(b.caught) {
				found := named(name)
				if len(found) == 0 {
					t.Errorf("there is no check named %s", name)
				}
				for _, c := range found {
					if err := c.run(&opener{open: b.open}); err == nil {
						t.Errorf("%s does not fail", c.name)
					}
				}
			}
		})
	}
}

// TestEveryCheckBites checks that every check fails for some broken store, because otherwise it is useless.
func TestEveryCheckBites(t *testing.T) {
	bites := map[string]bool{}
	for _, b := range brokenStores() {
		for _, name := range strings.Fields(b.caught) {
			for _, c := range named(name) {
				bites[c.name] = true
			}
		}
	}
	for _, c := range checks() {
		if !bites[c.name] {
			t.Errorf("%s fails for no broken store: add one to brokenStores", c.name)
		}
	}
}

// TestReference runs the suite on the reference, so that it does not require more than its own definitions.
func TestReference(t *testing.T) {
	Run(t, Harness{Open: func(_ testing.TB, clock *Clock) sluice.Store { return NewReference(clock) }})
}
