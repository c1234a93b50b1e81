package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluiceproject/sluice"
)

// steppedClock asks one key by a clock that wanders: forwards mostly, with stale stamps and steps of an hour either way.
// Whatever it does, what is admitted obeys the algorithm's invariant, with a key's time taken as the latest at which it
// was granted something.
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
				return fmt.Errorf("%v, seed %d: only %d grants in 400 takes over many windows", rule.Limit, seed, len(w.granted))
			}
		}
		return nil
	}
}

// wanderer takes from one key by a clock that does not keep to the order of time.
type wanderer struct {
	p       *probe
	rng     *rand.Rand
	window  time.Duration
	base    time.Duration // of which the clock is a little ahead or behind
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

// retryHonest: a take that is denied is denied again a microsecond before RetryAfter and allowed then, whatever it asks
// for; a peek is answered as a take of 1; what remains is the largest cost that is allowed, and the limit the largest
// that ever is; a key is as if never used after exactly ResetAfter. The store is asked all of that.
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

// honestTake makes up a take that can be allowed.
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

// honestOnce takes, and tries what the decision said.
func honestOnce(p *probe, t sluice.Take) error {
	d := p.apply(t)[0]
	charges := t.Rule.ChargeDenied && !d.Allowed
	again := *t.Rule
	again.ChargeDenied = false // what is tried again to find out must not count
	t.Rule = &again
	switch {
	case p.fault() != nil:
		return p.fault()
	case d.Remaining < 0 || d.Remaining > d.Limit:
		return fmt.Errorf("remaining is out of bounds: %s", describe(&d))
	case d.Allowed && d.RetryAfter != 0:
		return fmt.Errorf("allowed, and told to retry: %s", describe(&d))
	case !d.Allowed && d.ExceedsLimit:
		return fmt.Errorf("a cost of %d of %d is said never to fit", t.Cost, d.Limit)
	case !d.Allowed && d.RetryAfter <= 0:
		return fmt.Errorf("denied, and not told until when: %s", describe(&d))
	}
	if err := honestPeek(p, t.Rule, d.Remaining); err != nil || d.Allowed {
		return err
	}
	p.clock.Advance(d.RetryAfter - time.Microsecond)
	if early := p.apply(t)[0]; early.Allowed {
		return fmt.Errorf("cost %d, min %d, max delay %v, charged %v: told to wait %v, and admitted a microsecond earlier",
			t.Cost, t.MinGrant, t.MaxDelay, charges, d.RetryAfter)
	}
	p.clock.Advance(time.Microsecond)
	if late := p.apply(t)[0]; !late.Allowed {
		return fmt.Errorf("cost %d, min %d, max delay %v, charged %v: told to wait %v, waited, and denied: %s",
			t.Cost, t.MinGrant, t.MaxDelay, charges, d.RetryAfter, describe(&late))
	}
	return p.fault()
}

// honestPeek looks at a key of which so much is said to remain, and takes more than that.
func honestPeek(p *probe, rule *sluice.Rule, left int64) error {
	peek, more := p.peek(rule, "k"), p.take(rule, "k", left+1)
	switch {
	case p.fault() != nil:
		return p.fault()
	case peek.Remaining != left || peek.Allowed != (left > 0):
		return fmt.Errorf("%d remain, and a peek says %s", left, describe(&peek))
	case more.Allowed || more.ExceedsLimit != (left == more.Limit):
		return fmt.Errorf("%d remain, and a cost of 1 more is %s", left, describe(&more))
	case left == 0 && peek.RetryAfter != more.RetryAfter:
		return fmt.Errorf("a peek says to retry after %v, a take of 1 after %v", peek.RetryAfter, more.RetryAfter)
	}
	return nil
}

// resetHonest waits until the key is as if never used.
func resetHonest(p *probe, rule *sluice.Rule) error {
	d := p.take(rule, "k", 1)
	p.clock.Advance(d.ResetAfter)
	if fresh := p.peek(rule, "k"); fresh.Remaining != fresh.Limit || fresh.ResetAfter != 0 {
		return fmt.Errorf("%v after it was told to be reset then: %s", d.ResetAfter, describe(&fresh))
	}
	return p.fault()
}

// remainingAdds: at one instant, what remains after a take is what remained before less what was granted; a peek
// changes nothing, however often.
func remainingAdds(a algorithm) func(o *opener) error {
	return func(o *opener) error {
		p := o.probe()
		rule := a.rule("adds", 50, long)
		rng := rand.New(rand.NewPCG(1, 0xADD5))
		left := int64(50)
		for range 60 {
			p.expect("remaining by a peek", p.peek(rule, "k").Remaining, left)
			p.peek(rule, "k")
			d := p.take(rule, "k", 1+rng.Int64N(9))
			left -= d.Granted
			p.expect("remaining after a take", d.Remaining, left)
		}
		if never := p.take(rule, "k", 51); never.Allowed || !never.ExceedsLimit {
			p.failf("a cost of 51 of 50: %s", describe(&never))
		}
		if never := p.take(rule, "other", sluice.MaxCost); never.Allowed || !never.ExceedsLimit {
			p.failf("a cost of 2^50 of 50: %s", describe(&never))
		}
		return p.fault()
	}
}
