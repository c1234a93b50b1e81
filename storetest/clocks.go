package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluiceproject/sluice"
)

// steppedClock takes from one key on an unsteady clock: mostly forwards, with stale times and steps of an hour in both
// directions. The admitted takes must obey the algorithm's invariant, where a key's time is the latest time of a grant.
func steppedClock(a algorithm) func(o *opener) error {
	return func(o *opener) error {
		for seed := range uint64(4) {
			rng := rand.New(rand.NewPCG(seed, 0xC10C))
			p := o.probe()
			window := []time.Duration{50 * time.Millisecond, time.Second, time.Minute}[seed%3]
			rule := a.rule("stepped", 5+int64(seed), window)
			w := wanderer{p: p, rng: rng, window: window}
			for range 400 {
				w.move()
				w.take(rule)
			}
			if err := p.fault(); err != nil {
				return err
			}
			if err := a.holds(&rule.Limit, w.granted); err != nil {
				return fmt.Errorf("%v, seed %d: %w", rule.Limit, seed, err)
			}
			if len(w.granted) < 10 {
				return fmt.Errorf("%v, seed %d: only %d of 400 takes over many windows were granted", rule.Limit, seed, len(w.granted))
			}
		}
		return nil
	}
}

// wanderer takes from one key on a clock that does not run monotonically.
type wanderer struct {
	p       *probe
	rng     *rand.Rand
	window  time.Duration
	base    time.Duration // the clock is a little ahead of or behind this
	granted []grant
	latest  int64
}

func (w *wanderer) move() {
	switch w.rng.IntN(40) {
	case 0:
		w.base += time.Hour
	case 1:
		w.base -= time.Hour
	}
	w.base += time.Duration(w.rng.Int64N(int64(w.window / 8))).Truncate(time.Microsecond)
	jitter := time.Duration(w.rng.Int64N(int64(w.window))).Truncate(time.Microsecond) - w.window/2
	w.p.at(w.base + jitter)
}

func (w *wanderer) take(rule *sluice.Rule) {
	now := w.p.clock.Now().UnixMicro()
	d := w.p.take(rule, "k", 1+w.rng.Int64N(2))
	if w.rng.IntN(3) == 0 {
		w.p.peek(rule, "k")
	}
	if d.Granted > 0 {
		w.latest = max(w.latest, now)
		w.granted = append(w.granted, grant{w.latest, d.Granted, now + d.Delay.Microseconds()})
	}
}

// retryHonest checks the fields of decisions with further calls. A denied take must be denied until 1 µs before
// RetryAfter and allowed then, for any cost. A peek must decide like a take of 1. Remaining must be the largest cost
// that is allowed now, and Limit the largest that ever is. A key must be fully reset after exactly ResetAfter.
func retryHonest(a algorithm) func(o *opener) error {
	return func(o *opener) error {
		for seed := range uint64(12) {
			rng := rand.New(rand.NewPCG(seed, 0x4E70))
			p := o.probe()
			rule := a.rule("honest", 1+rng.Int64N(12), time.Duration(1+rng.Int64N(9_000))*10*time.Millisecond)
			for i := range 40 {
				p.clock.Advance(time.Duration(rng.Int64N(int64(rule.Limit.Window / 3))).Truncate(time.Microsecond))
				if err := honestOnce(p, honestTake(rng, rule)); err != nil {
					return fmt.Errorf("%v, seed %d, take %d: %w", rule.Limit, seed, i, err)
				}
			}
			if err := resetHonest(p, rule); err != nil {
				return fmt.Errorf("%v, seed %d: %w", rule.Limit, seed, err)
			}
		}
		return nil
	}
}

// honestTake returns a random take that can be allowed.
func honestTake(rng *rand.Rand, rule *sluice.Rule) sluice.Take {
	t := sluice.Take{Rule: rule, Key: "k", Cost: 1 + rng.Int64N(maxOf(&rule.Limit))}
	if rng.IntN(4) == 0 {
		t.MinGrant = 1 + rng.Int64N(t.Cost)
	}
	if rng.IntN(4) == 0 {
		t.MaxDelay = time.Duration(1+rng.Int64N(2*rule.Limit.Window.Microseconds())) * time.Microsecond
	}
	if rng.IntN(4) == 0 {
		charges := *rule
		charges.ChargeDenied = true
		t.Rule = &charges
	}
	return t
}

// honestOnce takes, and checks the decision.
func honestOnce(p *probe, t sluice.Take) error {
	d := p.apply(t)[0]
	charges := t.Rule.ChargeDenied && !d.Allowed
	again := *t.Rule
	again.ChargeDenied = false // further attempts must not be charged
	t.Rule = &again
	switch {
	case p.fault() != nil:
		return p.fault()
	case d.Remaining < 0 || d.Remaining > d.Limit:
		return fmt.Errorf("the value of Remaining is negative or above Limit: %s", describe(&d))
	case d.Allowed && d.RetryAfter != 0:
		return fmt.Errorf("allowed, but RetryAfter is not 0: %s", describe(&d))
	case !d.Allowed && d.ExceedsLimit:
		return fmt.Errorf("ExceedsLimit is set for a cost of %d and a Limit of %d", t.Cost, d.Limit)
	case !d.Allowed && d.RetryAfter <= 0:
		return fmt.Errorf("denied, but RetryAfter is not positive: %s", describe(&d))
	}
	if err := honestPeek(p, t.Rule, d.Remaining); err != nil || d.Allowed {
		return err
	}
	p.clock.Advance(d.RetryAfter - time.Microsecond)
	if early := p.apply(t)[0]; early.Allowed {
		return fmt.Errorf("cost %d, min %d, max delay %v, charged %v: RetryAfter is %v, but allowed 1 µs earlier",
			t.Cost, t.MinGrant, t.MaxDelay, charges, d.RetryAfter)
	}
	p.clock.Advance(time.Microsecond)
	if late := p.apply(t)[0]; !late.Allowed {
		return fmt.Errorf("cost %d, min %d, max delay %v, charged %v: RetryAfter is %v, but denied then: %s",
			t.Cost, t.MinGrant, t.MaxDelay, charges, d.RetryAfter, describe(&late))
	}
	return p.fault()
}

// honestPeek peeks at a key whose Remaining is left, and takes one more than that.
func honestPeek(p *probe, rule *sluice.Rule, left int64) error {
	peek, more := p.peek(rule, "k"), p.take(rule, "k", left+1)
	switch {
	case p.fault() != nil:
		return p.fault()
	case peek.Remaining != left || peek.Allowed != (left > 0):
		return fmt.Errorf("the value of Remaining is %d, but a peek returns %s", left, describe(&peek))
	case more.Allowed || more.ExceedsLimit != (left == more.Limit):
		return fmt.Errorf("the value of Remaining is %d, but a take of 1 more returns %s", left, describe(&more))
	case left == 0 && peek.RetryAfter != more.RetryAfter:
		return fmt.Errorf("RetryAfter of a peek is %v, of a take of 1 it is %v", peek.RetryAfter, more.RetryAfter)
	}
	return nil
}

// resetHonest checks that the key is fully reset after ResetAfter.
func resetHonest(p *probe, rule *sluice.Rule) error {
	d := p.take(rule, "k", 1)
	p.clock.Advance(d.ResetAfter)
	if fresh := p.peek(rule, "k"); fresh.Remaining != fresh.Limit || fresh.ResetAfter != 0 {
		return fmt.Errorf("not fully reset after ResetAfter of %v: %s", d.ResetAfter, describe(&fresh))
	}
	return p.fault()
}

// remainingAdds checks, on a clock that stands still, that Remaining decreases by exactly the granted cost, and that
// peeks change nothing.
func remainingAdds(a algorithm) func(o *opener) error {
	return func(o *opener) error {
		p := o.probe()
		rule := a.rule("adds", 50, long)
		rng := rand.New(rand.NewPCG(1, 0xADD5))
		left := int64(50)
		for range 60 {
			p.expect("Remaining of a peek", p.peek(rule, "k").Remaining, left)
			p.peek(rule, "k")
			d := p.take(rule, "k", 1+rng.Int64N(9))
			left -= d.Granted
			p.expect("Remaining after a take", d.Remaining, left)
		}
		if never := p.take(rule, "k", 51); never.Allowed || !never.ExceedsLimit {
			p.failf("cost 51, limit 50: %s", describe(&never))
		}
		if never := p.take(rule, "other", sluice.MaxCost); never.Allowed || !never.ExceedsLimit {
			p.failf("cost 2^50, limit 50: %s", describe(&never))
		}
		return p.fault()
	}
}
