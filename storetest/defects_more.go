package storetest

import (
	"fmt"
	"time"

	"github.com/sluiceproject/sluice"
)

// redis_rate's AllowAtMost spends what remains with its fraction and tells the caller a whole number: the fraction is
// lost.
func allowAtMostFraction(o *opener) error {
	p := o.probe()
	rule := newRule("r", sluice.Per(10, 10*time.Second))
	p.take(rule, "k", 10)
	p.at(2500 * time.Millisecond) // 2.5 have come back
	d := p.apply(sluice.Take{Rule: rule, Key: "k", Cost: 5, MinGrant: 1})[0]
	p.expect("granted of up to 5, with 2.5 there", d.Granted, 2)
	p.at(3 * time.Second) // and with the half, one more
	if d := p.take(rule, "k", 1); !d.Allowed {
		p.failf("half a token was lost: %s", describe(&d))
	}
	return p.fault()
}

// Kong counts each period before it decides, and caddy charges zones one after the other: a call that one rule denies
// drains the others.
func countedBeforeDecided(o *opener) error {
	p := o.probe()
	second := newRule("second", sluice.Per(1, time.Second).WithAlgorithm(sluice.FixedWindow))
	hour := newRule("hour", sluice.Per(100, time.Hour).WithAlgorithm(sluice.FixedWindow))
	for range 50 {
		p.apply(sluice.Take{Rule: hour, Key: "k", Cost: 1}, sluice.Take{Rule: second, Key: "k", Cost: 1})
		p.apply(sluice.Take{Rule: second, Key: "k", Cost: 1}, sluice.Take{Rule: hour, Key: "k", Cost: 1})
	}
	p.expect("spent of the hour by 100 calls, of which the second's limit let 1 pass", p.spent(hour, "k"), 1)
	return p.fault()
}

// A window's key that is told apart by its expiry alone, in whole seconds, leaks its count into the next window and
// then renews it.
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

// The count of the window before must last until this one ends.
func previousExpiresEarly(o *opener) error {
	p := o.probe()
	rule := newRule("r", sluice.Per(1_000_000, time.Minute).WithAlgorithm(sluice.SlidingWindowCounter))
	p.at(59 * time.Second)
	p.take(rule, "k", 1_000_000)
	for _, left := range []time.Duration{time.Minute, 30 * time.Second, 10 * time.Second, time.Second, 100 * time.Millisecond} {
		p.at(2*time.Minute - left)
		share := int64(left) * 1_000_000 / int64(time.Minute)
		if spent := p.spent(rule, "k"); spent < share || spent > share+1_000_000/65_536+1 {
			p.failf("%v before the end of the next window %d count, want about %d", left, spent, share)
		}
	}
	return p.fault()
}

// A command that is sent again because its answer was lost is charged twice, unless it says that it is the same.
func retryChargesTwice(o *opener) error {
	if o.caps.NoIdempotency {
		return nil
	}
	p := o.probe()
	rule := newRule("r", sluice.Per(10, time.Hour))
	for range 5 {
		p.apply(sluice.Take{Rule: rule, Key: "k", Cost: 3, IdempotencyID: 42})
	}
	p.expect("spent by one take that was sent five times", p.spent(rule, "k"), 3)
	return p.fault()
}

// x/time's Cancel gives back less than was reserved if others have reserved since.
func cancelGivesBackLess(o *opener) error {
	p := o.probe()
	for _, a := range algorithms {
		if a.name == "leaky_queue" {
			continue // those behind have been told when to leave: there is nothing to give back
		}
		rule := a.rule(a.name, 10, time.Hour)
		first := p.take(rule, "k", 4)
		p.clock.Advance(time.Microsecond)
		p.take(rule, "k", 3)
		back := p.apply(sluice.Take{Rule: rule, Key: "k", Cost: -4, Receipt: first.Receipt})[0]
		if back.Granted > -3 || p.spent(rule, "k") > 4 {
			p.failf("%s: 4 given back after a microsecond, with 3 taken since: %s", a.name, describe(&back))
		}
	}
	return p.fault()
}

// gubernator accepts negative hits from anybody at any time: they mint.
func givingBackMints(o *opener) error {
	p := o.probe()
	for _, a := range algorithms {
		rule := a.rule(a.name, 10, time.Second)
		p.at(0)
		first := p.take(rule, "k", 10)
		p.at(10 * time.Second) // all of it has worn off
		p.take(rule, "k", 10)
		for range 3 {
			p.apply(sluice.Take{Rule: rule, Key: "k", Cost: -10, Receipt: first.Receipt})
		}
		p.expect(a.name+": admitted after giving back what had worn off", p.admitted(rule, "k", 20, 1), 0)
	}
	for i, refill := range []sluice.Refill{sluice.RefillContinuous, sluice.RefillInterval} {
		limit := sluice.PerSecond(1).WithBurst(10)
		limit.Refill = refill
		rule := newRule(fmt.Sprint("place", i), limit)
		p.at(0)
		first := p.take(rule, "k", 10)
		p.expect("granted a place", p.apply(sluice.Take{Rule: rule, Key: "k", Cost: 10, MaxDelay: 20 * time.Second})[0].Granted, 10)
		p.apply(sluice.Take{Rule: rule, Key: "k", Cost: -10, Receipt: first.Receipt})
		p.at(10 * time.Second) // when that one leaves
		p.expect("admitted at the moment of a promised place", p.admitted(rule, "k", 10, 1), 0)
	}
	return p.fault()
}

// gubernator's leaky bucket let twice the limit pass in one duration.
func leakyDouble(o *opener) error {
	p := o.probe()
	rule := newRule("r", sluice.Per(100, time.Minute).WithAlgorithm(sluice.LeakyBucket).WithBurst(1))
	var granted int64
	for i := range 1200 {
		p.at(time.Duration(i) * 50 * time.Millisecond)
		granted += p.take(rule, "k", 1).Granted
	}
	p.expect("100/min without bursts, admitted in a minute", granted, 100)
	return p.fault()
}

// gubernator's months and years are off by an operator's precedence.
func gregorianMonth(o *opener) error {
	p := o.probe()
	rule := newRule("r", sluice.PerCalendar(3, sluice.CalendarMonth, nil))
	start := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	for month := range 24 {
		p.clock.Set(start.AddDate(0, month+1, 0).Add(-time.Microsecond))
		p.expect("admitted in a month", p.admitted(rule, "k", 5, 1), 3)
		if d := p.take(rule, "k", 1); d.RetryAfter != time.Microsecond {
			p.failf("a microsecond before the month ends: %s", describe(&d))
		}
	}
	return p.fault()
}

// Added without a check, a large number of hits wraps around and is small.
func hitsWrap(o *opener) error {
	p := o.probe()
	for _, a := range algorithms {
		if a.name == "concurrency" {
			continue // which charges no refusal
		}
		rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: a.name, Limit: a.with(sluice.Per(5, time.Second)), ChargeDenied: true}))
		for range 40 {
			if d := p.take(rule, "k", sluice.MaxCost); d.Allowed {
				p.failf("%s: 2^50 of 5 were admitted", a.name)
			}
			if d := p.take(rule, "k", 1); d.Allowed {
				p.failf("%s: admitted after 2^50 were charged", a.name)
			}
		}
		p.clock.Advance(3 * time.Second)
		if d := p.take(rule, "k", 1); !d.Allowed {
			p.failf("%s: still denied three windows later", a.name)
		}
	}
	return p.fault()
}

// go-limiter's Set gives a key a full budget when its limit changes.
func changeResets(o *opener) error {
	p := o.probe()
	for _, a := range algorithms {
		p.take(a.rule(a.name, 10, time.Hour), "k", 10)
		for _, limit := range []int64{5, 10} {
			p.expect(a.name+": admitted after the limit was changed", p.admitted(a.rule(a.name, limit, time.Hour), "k", 20, 1), 0)
		}
	}
	return p.fault()
}
