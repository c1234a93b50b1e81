package storetest

import (
	"time"

	"github.com/sluiceproject/sluice"
)

// defect is a known defect of another rate limiter, with a check that detects it.
type defect struct {
	name string
	run  func(o *opener) error
}

// peerDefects are named after the limiter and the defect.
var peerDefects = []defect{
	{"x_time_rollback", xTimeRollback},
	{"traefik_two_clocks", traefikTwoClocks},
	{"go_redisstore_sub_second", goRedisstoreSubSecond},
	{"redis_cell_sub_second", redisCellSubSecond},
	{"upstash_token_bucket_negative", upstashNegative},
	{"upstash_sliding_window_overshoot", upstashOvershoot},
	{"upstash_cached_window_never_expires_throttled_expiry_apart_from_value", windowKeysExpire},
	{"mennanov_sliding_window_overflow", mennanovOverflow},
	{"mennanov_flood_locks_out_tyk_denied_requests_recorded", floodLocksOut},
	{"redis_rate_allow_at_most_fraction", allowAtMostFraction},
	{"httprate_joined_keys", oddNames},
	{"kong_counted_before_decided_caddy_zones_charged_in_sequence", countedBeforeDecided},
	{"llm_proxy_count_leaks_into_next_window", countLeaks},
	{"posthog_previous_window_expires_early", previousExpiresEarly},
	{"rate_limit_redis_retry_charges_twice", retryChargesTwice},
	{"x_time_cancel_refunds_less", cancelGivesBackLess},
	{"gubernator_negative_hits_mint", givingBackMints},
	{"gubernator_leaky_bucket_double", leakyDouble},
	{"gubernator_month_length", gregorianMonth},
	{"envoy_hits_addend_wraps", hitsWrap},
	{"go_limiter_set_resets_to_full", changeResets},
}

// xTimeRollback: x/time/rate stores the last time even if it is older, so that the same interval is credited twice. It
// allowed 1,000 instead of 20 when each call was followed by a call of cost 0 with a time half a second earlier.
func xTimeRollback(o *opener) error { return setBack(o, 0, 20, "a second") }

// traefikTwoClocks: Traefik's script uses the gateway's clock and always stores it, so that two gateways whose clocks
// differ by half a second create tokens with each alternation. A fixed window may count the slow gateway's first half
// second in a separate window.
func traefikTwoClocks(o *opener) error { return setBack(o, 1, 30, "a second and a half") }

// setBack takes 1 of 10/s every 10 ms for a second, each time followed by a take of the given cost on a clock that is
// half a second behind. It fails if more than most are granted.
func setBack(o *opener, then, most int64, within string) error {
	p := o.probe()
	for _, a := range algorithms {
		rule := a.rule(a.name, 10, time.Second)
		var granted int64
		for i := range 100 {
			now := time.Duration(i) * 10 * time.Millisecond
			p.at(now)
			granted += p.take(rule, "k", 1).Granted
			p.at(now - 500*time.Millisecond)
			granted += p.take(rule, "k", then).Granted
		}
		if granted > most {
			p.failf("%s: a limit of 10/s admitted %d in %s", a.name, granted, within)
		}
	}
	return p.fault()
}

// goRedisstoreSubSecond: go-redisstore rounds TTLs down to whole seconds. Below one second the TTL is 0, which deletes
// the key, so that 50 of 50 were allowed with a limit of 5.
func goRedisstoreSubSecond(o *opener) error {
	p := o.probe()
	for _, a := range algorithms {
		p.expect(a.name+": admitted of 50 with a limit of 5/500ms", p.admitted(a.rule(a.name, 5, 500*time.Millisecond), "k", 50, 1), 5)
		p.expect(a.name+": admitted of 50 with a limit of 5/5s", p.admitted(a.rule(a.name+" long", 5, 5*time.Second), "k", 50, 1), 5)
	}
	return p.fault()
}

// redisCellSubSecond: redis-cell stored no key for 1000 per minute, because the 60 ms of a token are less than one
// second.
func redisCellSubSecond(o *opener) error {
	p := o.probe()
	rule := newRule("r", sluice.Per(1000, time.Minute).WithBurst(1))
	p.expect("1000/min with burst 1: admitted of 20 at once", p.admitted(rule, "k", 20, 1), 1)
	p.clock.Advance(60 * time.Millisecond)
	p.expect("1000/min with burst 1: admitted 60 ms later", p.admitted(rule, "k", 20, 1), 1)
	return p.fault()
}

// upstashNegative: upstash's token bucket denies at exactly 0 tokens. After a cost that makes it negative, the next
// takes are allowed.
func upstashNegative(o *opener) error {
	p := o.probe()
	rule := newRule("r", sluice.Per(10, time.Minute))
	if d := p.take(rule, "k", 7); !d.Allowed {
		p.failf("take of 7, limit 10: %s", describe(&d))
	}
	if d := p.take(rule, "k", 7); d.Allowed {
		p.failf("second take of 7, limit 10: %s", describe(&d))
	}
	p.expect("admitted of 20 after 7 of 10", p.admitted(rule, "k", 20, 1), 3)
	return p.fault()
}

// upstashOvershoot: upstash's sliding window compares the usage before it adds the cost, so that it exceeds the limit
// by up to cost − 1.
func upstashOvershoot(o *opener) error {
	p := o.probe()
	for _, a := range algorithms {
		rule := a.rule(a.name, 10, time.Minute)
		p.take(rule, "k", 9)
		if d := p.take(rule, "k", 5); d.Allowed {
			p.failf("%s: a take of 5 was allowed at a usage of 9 of 10", a.name)
		}
		p.expect(a.name+": admitted at a usage of 9 of 10", p.admitted(rule, "k", 5, 1), 1)
	}
	return p.fault()
}

// windowKeysExpire: upstash's cached window compares a number with a string and so never sets a TTL; throttled sets
// value and TTL in two steps. Keys are never removed.
func windowKeysExpire(o *opener) error { return forgets(o) }

// mennanovOverflow: mennanov/limiters multiplies the last window's count by its nanoseconds. Above 106,000 per day the
// product overflows to a negative number, and everything is allowed.
func mennanovOverflow(o *opener) error {
	for _, a := range algorithms {
		for _, limit := range []int64{200_000, 10_000_000, 1<<32 - 1} {
			if a.name == "sliding_log" || a.name == "concurrency" {
				limit = 10_000 // the maximum of a log
			}
			p := o.probe()
			p.at(22*time.Hour + 30*time.Minute) // the end of a day
			rule := a.rule(a.name, limit, 24*time.Hour)
			p.expect("admitted at the end of a day", p.take(rule, "k", limit).Granted, limit)
			d := p.take(rule, "k", limit/2)
			if d.Allowed {
				p.failf("%v: half of the limit was allowed right after the whole limit", rule.Limit)
			}
			if a.name == "sliding_counter" || a.name == "sliding_counter_subwindows" {
				p.at(24 * time.Hour)
				if d := p.take(rule, "k", limit/2); d.Allowed {
					p.failf("%v: half of the limit was allowed 1.5 hours after the whole limit", rule.Limit)
				}
			}
			if err := p.fault(); err != nil {
				return err
			}
		}
	}
	return nil
}

// floodLocksOut: if denied requests are counted, a client that keeps sending is never allowed again.
func floodLocksOut(o *opener) error {
	p := o.probe()
	for _, a := range algorithms {
		rule := a.rule(a.name, 5, time.Second)
		var granted int64
		for i := range 400 { // for 10 s, at eight times the limit
			p.at(time.Duration(i) * 25 * time.Millisecond)
			granted += p.take(rule, "k", 1).Granted
		}
		if granted < 45 || granted > 60 {
			p.failf("%s: a limit of 5/s admitted %d in 10 s of continuous requests", a.name, granted)
		}
	}
	return p.fault()
}
