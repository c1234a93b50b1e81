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

// brokenCounts count wrongly.
func brokenCounts() []broken {
	return []broken{
		{"admits one too many", overAdmitting, "History SubSecond OddNames KeepsUntil Exact SteppedClock RemainingAdds Linearizable Transfer " +
			"AllOrNothing PeerDefects/go_redisstore_sub_second PeerDefects/redis_cell_sub_second " +
			"PeerDefects/upstash_token_bucket_negative PeerDefects/upstash_sliding_window_overshoot " +
			"PeerDefects/gubernator_leaky_bucket_double PeerDefects/gubernator_month_length"},
		{"charges what it denies", asking(remaking(func(r *sluice.Rule) { r.ChargeDenied = true })), "History AllOrNothing PeerDefects/kong_counted_before_decided_caddy_zones_charged_in_sequence " +
			"PeerDefects/mennanov_flood_locks_out_tyk_denied_requests_recorded Transcripts/several"},
		{"never forgets", tampered(neverForgetting), "Forgets " +
			"PeerDefects/upstash_cached_window_never_expires_throttled_expiry_apart_from_value"},
		{"forgets within a second", tampered(shortLived), "SubSecond KeepsUntil ExactMoving/token_bucket PeerDefects/go_redisstore_sub_second " +
			"PeerDefects/redis_cell_sub_second Transcripts/subsecond"},
		{"credits time twice", func(clock *Clock) sluice.Store { return onClock(backwards())(clock) }, "SteppedClock PeerDefects/x_time_rollback PeerDefects/traefik_two_clocks Transcripts/token_bucket"},
		{"has seconds only", onClock(func(real time.Time) time.Time { return real.Truncate(time.Second) }), "SubSecond RetryHonest Transcripts/subsecond"},
		{"charges peeks", asking(func(t *sluice.Take) { t.Cost += map[bool]int64{true: 1}[t.Cost == 0] }), "RemainingAdds Cancelled OddCalls Transcripts/odd_costs"},
		{"wraps at 32 bits", asking(wrap32), "RemainingAdds PeerDefects/envoy_hits_addend_wraps Transcripts/odd_costs"},
		{"forgets the window before", asking(remaking(func(r *sluice.Rule) {
			if r.Limit.Algorithm == sluice.SlidingWindowCounter {
				r.Limit = sluice.Per(r.Limit.Count, r.Limit.Window).WithAlgorithm(sluice.FixedWindow)
			}
		})), "PeerDefects/mennanov_sliding_window_overflow PeerDefects/posthog_previous_window_expires_early " +
			"SteppedClock/sliding_counter Transcripts/sliding_counter"},
		{"ends windows a second late", asking(remaking(func(r *sluice.Rule) { r.Limit.Window += time.Second })), "PeerDefects/llm_proxy_count_leaks_into_next_window Transcripts/fixed_window"},
	}
}

// brokenAnswers tell what is not so.
func brokenAnswers() []broken {
	return []broken{
		{"retries a microsecond early", answering(func(_ *sluice.Take, d *sluice.Decision) {
			d.RetryAfter = max(0, d.RetryAfter-time.Microsecond)
		}), "SubSecond RetryHonest Transcripts/worked_examples"},
		{"retries a microsecond late", answering(func(_ *sluice.Take, d *sluice.Decision) {
			if d.RetryAfter > 0 {
				d.RetryAfter += time.Microsecond
			}
		}), "SubSecond RetryHonest Transcripts/worked_examples"},
		{"resets early", answering(func(_ *sluice.Take, d *sluice.Decision) {
			d.ResetAfter = max(0, d.ResetAfter-time.Microsecond)
		}), "RetryHonest/token_bucket RetryHonest/fixed_window RetryHonest/sliding_log Forgets Transcripts/fixed_window"},
		{"tells one too many remaining", answering(func(_ *sluice.Take, d *sluice.Decision) {
			if d.Remaining < d.Limit {
				d.Remaining++
			}
		}), "RemainingAdds Linearizable Transcripts/leaky_bucket"},
		{"does not queue", answering(func(_ *sluice.Take, d *sluice.Decision) { d.Delay = 0 }), "SteppedClock/leaky_queue Transcripts/leaky_queue Transcripts/worked_examples"},
		{"says not now for never", answering(func(_ *sluice.Take, d *sluice.Decision) {
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

// brokenNames take buckets for each other, or one for two.
func brokenNames() []broken {
	return []broken{
		{"joins rule and key with a colon", asking(joined()), "OddNames PeerDefects/httprate_joined_keys"},
		{"knows no rules", asking(remaking(func(r *sluice.Rule) { r.Name = "r" })), "OddNames AllOrNothing OnceByID"},
		{"starts anew when a limit changes", asking(func(t *sluice.Take) { t.Key += "\x00" + t.EffectiveLimit().String() }), "PeerDefects/go_limiter_set_resets_to_full Transcripts/changed_limits Changes"},
		{
			"keeps the time until full when a limit changes", tampered(keepingTime),
			"Changes/minute_to_day Changes/day_to_minute Changes/month_to_second Changes/minute_to_day_plain Changes/larger_and_back " +
				"Changes/smaller Changes/in_debt Changes/queue Changes/plans Transcripts/changed_limits",
		},
		{"cuts keys at 250 bytes", asking(fold(cut(250))), "OddNames"},
		{"cuts keys at NUL", asking(fold(untilNUL)), "OddNames"},
		{"keeps released slots", asking(keepingSlots), "Slots/Contention Transcripts/concurrency"},
		{"frees another's slot", tampered(freeingAny), "Slots/ReleasedTwice"},
		{"renews in words only", tampered(renewingInWords), "Slots/Renewed Transcripts/concurrency"},
		{"lets the dead hold on", asking(remaking(lastingTwice)), "Slots/DeadHolders Slots/Renewed"},
		{"folds case", asking(fold(strings.ToUpper)), "OddNames"},
		{"trims keys", asking(fold(strings.TrimSpace)), "OddNames"},
		{"names buckets by one byte", asking(fold(cut(1))), "OddNames Isolated"},
	}
}

// brokenCalls do other than they are asked.
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
		{"heeds shadow rules", asking(remaking(func(r *sluice.Rule) { r.Shadow = false })), "History Transcripts/several"},
		{"does not reset", tampered(func(h *hooked) {
			h.reset = func(context.Context, sluice.Bucket) error { return nil }
		}), "Buckets Linearizable Transcripts/blocks"},
		{"does not find what is counted under a slot", tampered(func(h *hooked) {
			h.reset = func(ctx context.Context, b sluice.Bucket) error {
				if b.HashTag != "" {
					return nil
				}
				return h.Reference.Reset(ctx, b)
			}
		}), "Buckets"},
		{"resets under the rule's limit alone", tampered(func(h *hooked) {
			h.reset = func(ctx context.Context, b sluice.Bucket) error {
				return h.Reference.Reset(ctx, sluice.Bucket{Rule: b.Rule, Key: b.Key})
			}
		}), "Buckets"},
		{"gives back what has worn off", tampered(func(h *hooked) {
			h.ask = func(t *sluice.Take) {
				if t.Cost < 0 {
					t.Receipt = h.clock.Now().UnixMicro()
				}
			}
		}), "PeerDefects/gubernator_negative_hits_mint Transcripts/give_back"},
		{"gives nothing back", asking(func(t *sluice.Take) {
			if t.Cost < 0 {
				t.Cost = 0
			}
		}), "PeerDefects/x_time_cancel_gives_back_less Transcripts/give_back Transcripts/fixed_window_soft"},
		{"leaves what was reserved as it is", asking(func(t *sluice.Take) {
			if t.Receipt != 0 && t.Settles {
				t.Cost, t.Settles = 0, false
			}
		}), "Settles"},
		{
			"leaves no marks", asking(func(t *sluice.Take) { t.Settles = t.Settles && t.Receipt != 0 }),
			"Settles/below_the_estimate Settles/two_in_flight Settles/the_second_first Settles/others_keep_it_from_wearing_off " +
				"Settles/six_of_10000 Settles/interval Settles/40_in_32_marks Settles/plain_takes_between",
		},
		{
			"gives back by age", asking(func(t *sluice.Take) { t.Settles = t.Settles && t.Receipt == 0 }),
			"Settles/two_in_flight Settles/others_keep_it_from_wearing_off Settles/six_of_10000 Settles/forgets_marks Settles/concurrency",
		},
		{"accepts no part", asking(func(t *sluice.Take) { t.MinGrant = 0 }), "PeerDefects/redis_rate_allow_at_most_fraction Transcripts/odd_costs"},
	}
}

// named are the checks of a name, or all below it.
func named(name string) []check {
	return slices.DeleteFunc(checks(), func(c check) bool { return c.name != name && !strings.HasPrefix(c.name, name+"/") })
}

// TestSuiteBites runs the checks against stores that are broken in known ways. Each must notice what it is for.
func TestSuiteBites(t *testing.T) {
	for _, b := range brokenStores() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			for _, name := range strings.Fields(b.caught) {
				found := named(name)
				if len(found) == 0 {
					t.Errorf("there is no check called %s", name)
				}
				for _, c := range found {
					if err := c.run(&opener{open: b.open}); err == nil {
						t.Errorf("%s finds nothing wrong", c.name)
					}
				}
			}
		})
	}
}

// TestEveryCheckBites: a check that no broken store fails may as well not be there.
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
			t.Errorf("%s: add a store to brokenStores that is broken so that it is caught", c.name)
		}
	}
}

// TestReference holds the reference to the suite: what it asks of stores is not more than its own definitions.
func TestReference(t *testing.T) {
	Run(t, Harness{Open: func(_ testing.TB, clock *Clock) sluice.Store { return NewReference(clock) }})
}
