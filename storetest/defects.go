package storetest

import (
	"time"

	"github.com/sluiceproject/sluice"
)

// defect is something that went wrong in another limiter, as a check that would have noticed.
type defect struct {
	name string
	run  func(o *opener) error
}

// peerDefects are named for where they were found.
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
	{"x_time_cancel_gives_back_less", cancelGivesBackLess},
	{"gubernator_negative_hits_mint", givingBackMints},
	{"gubernator_leaky_bucket_double", leakyDouble},
	{"gubernator_month_length", gregorianMonth},
	{"envoy_hits_addend_wraps", hitsWrap},
	{"go_limiter_set_resets_to_full", changeResets},
}

// x/time/rate stores the last time even when it is older, so that the same interval is credited twice: 1,000 were
// allowed where 20 were due, each call being followed by one of no cost that was stamped half a second earlier.
func xTimeRollback(o *opener) error { return setBack(o, 0, 20, "a second") }

// Traefik's script takes the gateway's clock and writes it back whatever it was: two gateways half a second apart mint
// tokens with each alternation. A fixed window may count the slow gateway's first half second in a window of its own.
func traefikTwoClocks(o *opener) error { return setBack(o, 1, 30, "a second and a half") }

// setBack takes 1 of 10/s every 10 ms for a second, each time followed by a take of cost then at a clock that is half a
// second slow, and fails if more than most are granted.
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
			p.failf("%s: 10/s admitted %d in %s", a.name, granted, within)
		}
	}
	return p.fault()
}

// go-redisstore's time to live is rounded down to whole seconds: below one it is 0, which deletes the key, and 50 of 50
// were allowed where the limit was 5.
func goRedisstoreSubSecond(o *opener) error {
	p := o.probe()
	for _, a := range algorithms {
		p.expect(a.name+": 5/500ms admitted of 50", p.admitted(a.rule(a.name, 5, 500*time.Millisecond), "k", 50, 1), 5)
		p.expect(a.name+": 5/5s admitted of 50", p.admitted(a.rule(a.name+" long", 5, 5*time.Second), "k", 50, 1), 5)
	}
	return p.fault()
}

// redis-cell wrote no key for 1000 a minute: a token takes 60 ms, which is no whole second.
func redisCellSubSecond(o *opener) error {
	p := o.probe()
	rule := newRule("r", sluice.Per(1000, time.Minute).WithBurst(1))
	p.expect("1000/min, burst 1, admitted of 20 at once", p.admitted(rule, "k", 20, 1), 1)
	p.clock.Advance(60 * time.Millisecond)
	p.expect("and 60 ms later", p.admitted(rule, "k", 20, 1), 1)
	return p.fault()
}

// upstash's token bucket denies at exactly 0 tokens; a cost that takes it below makes the next ones pass.
func upstashNegative(o *opener) error {
	p := o.probe()
	rule := newRule("r", sluice.Per(10, time.Minute))
	if d := p.take(rule, "k", 7); !d.Allowed {
		p.failf("7 of 10: %s", describe(&d))
	}
	if d := p.take(rule, "k", 7); d.Allowed {
		p.failf("7 more of 10: %s", describe(&d))
	}
	p.expect("then admitted of 20", p.admitted(rule, "k", 20, 1), 3)
	return p.fault()
}

// upstash's sliding window looks at what was used before it adds the cost: over by cost less one.
func upstashOvershoot(o *opener) error {
	p := o.probe()
	for _, a := range algorithms {
		rule := a.rule(a.name, 10, time.Minute)
		p.take(rule, "k", 9)
		if d := p.take(rule, "k", 5); d.Allowed {
			p.failf("%s: 9 of 10 were used, and 5 were admitted", a.name)
		}
		p.expect(a.name+": admitted of what is left", p.admitted(rule, "k", 5, 1), 1)
	}
	return p.fault()
}

// upstash's cached window compares a number with a string and so never sets an expiry; throttled sets value and expiry
// in two steps. Keys stay for ever.
func windowKeysExpire(o *opener) error { return forgets(o) }

// mennanov/limiters multiplies the last window's count by its nanoseconds: beyond 106,000 a day that is negative, and
// everything is allowed.
func mennanovOverflow(o *opener) error {
	for _, a := range algorithms {
		for _, limit := range []int64{200_000, 10_000_000, 1<<32 - 1} {
			if a.name == "sliding_log" || a.name == "concurrency" {
				limit = 10_000 // all it holds
			}
			p := o.probe()
			p.at(22*time.Hour + 30*time.Minute) // the end of a day
			rule := a.rule(a.name, limit, 24*time.Hour)
			p.expect("admitted at the end of a day", p.take(rule, "k", limit).Granted, limit)
			d := p.take(rule, "k", limit/2)
			if d.Allowed {
				p.failf("%v: half as much again at once", rule.Limit)
			}
			if a.name == "sliding_counter" || a.name == "sliding_counter_subwindows" {
				p.at(24 * time.Hour)
				if d := p.take(rule, "k", limit/2); d.Allowed {
					p.failf("%v: half as much again an hour and a half later", rule.Limit)
				}
			}
			if err := p.fault(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Where refused requests are counted, who keeps asking is never admitted again.
func floodLocksOut(o *opener) error {
	p := o.probe()
	for _, a := range algorithms {
		rule := a.rule(a.name, 5, time.Second)
		var granted int64
		for i := range 400 { // for ten seconds, eight times too much
			p.at(time.Duration(i) * 25 * time.Millisecond)
			granted += p.take(rule, "k", 1).Granted
		}
		if granted < 45 || granted > 60 {
			p.failf("%s: 5/s admitted %d in ten seconds of asking all the time", a.name, granted)
		}
	}
	return p.fault()
}
