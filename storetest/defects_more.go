package storetest

import (
	"fmt"
	"time"

	"github.com/sluiceproject/sluice"
)

// allowAtMostFraction: redis_rate's AllowAtMost takes all that remains, including the fraction, and returns a whole
// number: the fraction is lost.
func allowAtMostFraction(o *opener) error {
	p := o.probe()
	rule := newRule("r", sluice.Per(10, 10*time.Second))
	p.take(rule, "k", 10)
	p.at(2500 * time.Millisecond) // 2.5 tokens have been refilled
	d := p.apply(sluice.Take{Rule: rule, Key: "k", Cost: 5, MinGrant: 1})[0]
	p.expect("granted of up to 5, with 2.5 tokens", d.Granted, 2)
	p.at(3 * time.Second) // with the remaining half, one more
	if d := p.take(rule, "k", 1); !d.Allowed {
		p.failf("half a token was lost: %s", describe(&d))
	}
	return p.fault()
}

// countedBeforeDecided: Kong counts each period before it decides, and caddy charges zones one after the other. A call
// that one rule denies uses up the others.
func countedBeforeDecided(o *opener) error {
	p := o.probe()
	second := newRule("second", sluice.Per(1, time.Second).WithAlgorithm(sluice.FixedWindow))
	hour := newRule("hour", sluice.Per(100, time.Hour).WithAlgorithm(sluice.FixedWindow))
	for range 50 {
		p.apply(sluice.Take{Rule: hour, Key: "k", Cost: 1}, sluice.Take{Rule: second, Key: "k", Cost: 1})
		p.apply(sluice.Take{Rule: second, Key: "k", Cost: 1}, sluice.Take{Rule: hour, Key: "k", Cost: 1})
	}
	p.expect("usage of the hourly limit after 100 calls, 1 of which the limit per second allowed", p.spent(hour, "k"), 1)
	return p.fault()
}

// countLeaks: a window that is identified only by the expiry of its key, in whole seconds, adds its count to the next
// window and then renews it.
func countLeaks(o *opener) error {
	p := o.probe()
	for _, align := range []sluice.Align{sluice.AlignEpoch, sluice.AlignFirstRequest} {
		rule := newRule("r"+string(rune('0'+align)), sluice.Per(5, time.Minute).WithAlgorithm(sluice.FixedWindow).WithAlign(align))
		p.at(0)
		for window := range 5 {
			p.at(time.Duration(window)*time.Minute + 59_999_999*time.Microsecond)
			p.admitted(rule, "k", 10, 1)
			p.at(time.Duration(window+1) * time.Minute)
			if align == sluice.AlignEpoch {
				p.expect("admitted in the first microsecond of a window", p.admitted(rule, "k", 10, 1), 5)
			}
		}
		p.at(time.Hour)
		p.expect("admitted after an hour", p.admitted(rule, "k", 10, 1), 5)
	}
	return p.fault()
}

// previousExpiresEarly: the count of the previous window must be kept until the current one ends.
func previousExpiresEarly(o *opener) error {
	p := o.probe()
	rule := newRule("r", sluice.Per(1_000_000, time.Minute).WithAlgorithm(sluice.SlidingWindowCounter))
	p.at(59 * time.Second)
	p.take(rule, "k", 1_000_000)
	for _, left := range []time.Duration{time.Minute, 30 * time.Second, 10 * time.Second, time.Second, 100 * time.Millisecond} {
		p.at(2*time.Minute - left)
		share := int64(left) * 1_000_000 / int64(time.Minute)
		if spent := p.spent(rule, "k"); spent < share || spent > share+1_000_000/65_536+1 {
			p.failf("%v before the end of the next window the usage is %d, want about %d", left, spent, share)
		}
	}
	return p.fault()
}

// retryChargesTwice: a command that is sent again because its reply was lost is charged twice, unless it has an
// idempotency ID.
func retryChargesTwice(o *opener) error {
	if o.caps.NoIdempotency {
		return nil
	}
	p := o.probe()
	rule := newRule("r", sluice.Per(10, time.Hour))
	for range 5 {
		p.apply(sluice.Take{Rule: rule, Key: "k", Cost: 3, IdempotencyID: 42})
	}
	p.expect("usage after one take that was sent five times", p.spent(rule, "k"), 3)
	return p.fault()
}

// cancelGivesBackLess: x/time's Cancel refunds less than was reserved if others have reserved since.
func cancelGivesBackLess(o *opener) error {
	p := o.probe()
	for _, a := range algorithms {
		if a.name == "leaky_queue" {
			continue // the takes behind have a promised time, so nothing can be refunded
		}
		rule := a.rule(a.name, 10, time.Hour)
		first := p.take(rule, "k", 4)
		p.clock.Advance(time.Microsecond)
		p.take(rule, "k", 3)
		back := p.apply(sluice.Take{Rule: rule, Key: "k", Cost: -4, Receipt: first.Receipt})[0]
		if back.Granted > -3 || p.spent(rule, "k") > 4 {
			p.failf("%s: refund of 4 after 1 µs, with 3 taken since: %s", a.name, describe(&back))
		}
	}
	return p.fault()
}

// givingBackMints: gubernator accepts negative hits at any time, which create quota.
func givingBackMints(o *opener) error {
	p := o.probe()
	for _, a := range algorithms {
		rule := a.rule(a.name, 10, time.Second)
		p.at(0)
		first := p.take(rule, "k", 10)
		p.at(10 * time.Second) // all of it has expired
		p.take(rule, "k", 10)
		for range 3 {
			p.apply(sluice.Take{Rule: rule, Key: "k", Cost: -10, Receipt: first.Receipt})
		}
		p.expect(a.name+": admitted after the refund of an expired take", p.admitted(rule, "k", 20, 1), 0)
	}
	for i, refill := range []sluice.Refill{sluice.RefillContinuous, sluice.RefillInterval} {
		limit := sluice.PerSecond(1).WithBurst(10)
		limit.Refill = refill
		rule := newRule(fmt.Sprint("place", i), limit)
		p.at(0)
		first := p.take(rule, "k", 10)
		p.expect("granted with a delay", p.apply(sluice.Take{Rule: rule, Key: "k", Cost: 10, MaxDelay: 20 * time.Second})[0].Granted, 10)
		p.apply(sluice.Take{Rule: rule, Key: "k", Cost: -10, Receipt: first.Receipt})
		p.at(10 * time.Second) // when the delayed take is released
		p.expect("admitted at the time of a delayed take", p.admitted(rule, "k", 10, 1), 0)
	}
	return p.fault()
}

// leakyDouble: gubernator's leaky bucket admitted twice the limit in one duration.
func leakyDouble(o *opener) error {
	p := o.probe()
	rule := newRule("r", sluice.Per(100, time.Minute).WithAlgorithm(sluice.LeakyBucket).WithBurst(1))
	var granted int64
	for i := range 1200 {
		p.at(time.Duration(i) * 50 * time.Millisecond)
		granted += p.take(rule, "k", 1).Granted
	}
	p.expect("100/min with burst 1: admitted in a minute", granted, 100)
	return p.fault()
}

// gregorianMonth: gubernator's months and years are wrong because of operator precedence.
func gregorianMonth(o *opener) error {
	p := o.probe()
	rule := newRule("r", sluice.PerCalendar(3, sluice.CalendarMonth, nil))
	start := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	for month := range 24 {
		p.clock.Set(start.AddDate(0, month+1, 0).Add(-time.Microsecond))
		p.expect("admitted in a month", p.admitted(rule, "k", 5, 1), 3)
		if d := p.take(rule, "k", 1); d.RetryAfter != time.Microsecond {
			p.failf("1 µs before the month ends: %s", describe(&d))
		}
	}
	return p.fault()
}

// hitsWrap: added without a check, a large number of hits overflows to a small one.
func hitsWrap(o *opener) error {
	p := o.probe()
	for _, a := range algorithms {
		if a.name == "concurrency" {
			continue // which charges no denied takes
		}
		rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: a.name, Limit: a.with(sluice.Per(5, time.Second)), ChargeDenied: true}))
		for range 40 {
			if d := p.take(rule, "k", sluice.MaxCost); d.Allowed {
				p.failf("%s: a take of 2^50 was allowed with a limit of 5", a.name)
			}
			if d := p.take(rule, "k", 1); d.Allowed {
				p.failf("%s: allowed after 2^50 were charged", a.name)
			}
		}
		p.clock.Advance(3 * time.Second)
		if d := p.take(rule, "k", 1); !d.Allowed {
			p.failf("%s: still denied three windows later", a.name)
		}
	}
	return p.fault()
}

// changeResets: go-limiter's Set resets a key when its limit changes.
func changeResets(o *opener) error {
	p := o.probe()
	for _, a := range algorithms {
		p.take(a.rule(a.name, 10, time.Hour), "k", 10)
		for _, limit := range []int64{5, 10} {
			p.expect(a.name+": admitted after the limit was changed at full usage", p.admitted(a.rule(a.name, limit, time.Hour), "k", 20, 1), 0)
		}
	}
	return p.fault()
}
