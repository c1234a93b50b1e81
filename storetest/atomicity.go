package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
)

// transfer checks concurrent calls that take from two buckets, in either order. They must not deadlock, and at every
// moment both buckets must have the same usage: all or nothing.
func transfer(o *opener) error {
	p := o.probe()
	a := newRule("a", sluice.Per(150, long).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest))
	b := newRule("b", sluice.Per(120, long))
	if o.caps.RealClock { // a caller that read the clock earlier finds less in a bucket
		b = newRule("b", sluice.Per(120, long).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest))
	}
	var both atomic.Int64
	err := together(callers, func(i int) {
		for j := range 12 {
			takes := []sluice.Take{{Rule: a, Key: "x", Cost: 1}, {Rule: b, Key: "x", Cost: 1}}
			switch {
			case i%4 == 1:
				takes[0], takes[1] = takes[1], takes[0]
			case i%4 == 2 && j%2 == 0: // other buckets are in the call as well
				takes = append(takes, sluice.Take{Rule: a, Key: fmt.Sprint(i), Cost: 1})
			case i%4 == 3 && !o.caps.NonAtomicKeys:
				sameCharge(p, a, b)
				continue
			}
			out := p.apply(takes...)
			if out[0].Granted != out[1].Granted {
				p.failf("two takes of one call, one charged and the other not:\n%s\n%s", describe(&out[0]), describe(&out[1]))
			}
			both.Add(out[0].Granted)
		}
	})
	if err != nil {
		return err
	}
	if o.caps.NonAtomicKeys { // a call may have been denied because of a charge that was then refunded
		both.Add(p.admittedByBoth(a, b))
	}
	p.inBounds("admitted by both limits, the smaller of which is 120", both.Load(), 120, o.caps.Overshoot)
	p.expect("usage of the limit of 150", p.spent(a, "x"), both.Load())
	p.expect("usage of the limit of 120", p.spent(b, "x"), both.Load())
	return p.fault()
}

// admittedByBoth takes until both limits deny, and returns how much was granted.
func (p *probe) admittedByBoth(a, b *sluice.Rule) (granted int64) {
	for range 150 {
		granted += p.apply(sluice.Take{Rule: a, Key: "x", Cost: 1}, sluice.Take{Rule: b, Key: "x", Cost: 1})[0].Granted
	}
	return granted
}

// sameCharge peeks at both buckets in one call.
func sameCharge(p *probe, a, b *sluice.Rule) {
	out := p.apply(sluice.Take{Rule: a, Key: "x"}, sluice.Take{Rule: b, Key: "x"})
	if one, other := 150-out[0].Remaining, 120-out[1].Remaining; one != other {
		p.failf("at one moment the usage of one bucket was %d and that of the other %d, want the same", one, other)
	}
}

// allOrNothing makes random calls of several takes on several keys, in any order. If one take is denied, none is
// charged, and the order does not matter.
func allOrNothing(o *opener) error {
	rng := rand.New(rand.NewPCG(3, 0xA11))
	one, other := o.probe(), o.probe() // the same calls, with the takes in another order
	var rules []*sluice.Rule
	for i := range algorithms {
		rules = append(rules, algorithms[i].rule(algorithms[i].name, 3+rng.Int64N(20), long))
	}
	keys := []string{"a", "b", "c"}
	for call := range 250 {
		var takes []sluice.Take
		for _, i := range rng.Perm(len(rules) * len(keys))[:1+rng.IntN(5)] {
			takes = append(takes, sluice.Take{Rule: rules[i/len(keys)], Key: keys[i%len(keys)], Cost: 1 + rng.Int64N(3)})
		}
		before := spentOn(one, takes)
		out := one.apply(takes...)
		after := spentOn(one, takes)
		denied := false
		for i := range out {
			denied = denied || !out[i].Allowed
		}
		for i := range takes {
			want := takes[i].Cost
			if denied {
				want = 0
			}
			if got := after[i] - before[i]; got != want || out[i].Granted != want {
				return fmt.Errorf("call %d, take %d of %d: charged %d and granted %d, want %d:\n%s", call, i, len(takes), got, out[i].Granted, want, describe(&out[i]))
			}
		}
		order := rng.Perm(len(takes))
		shuffled := make([]sluice.Take, len(takes))
		for i, j := range order {
			shuffled[i] = takes[j]
		}
		for i, d := range other.apply(shuffled...) {
			if d != out[order[i]] && !o.caps.RealClock {
				return fmt.Errorf("call %d: the decision depends on the order of the takes:\n%s\n%s", call, describe(&d), describe(&out[order[i]]))
			}
		}
	}
	return errors.Join(one.fault(), other.fault())
}

func spentOn(p *probe, takes []sluice.Take) []int64 {
	spent := make([]int64, len(takes))
	for i := range takes {
		spent[i] = p.spent(takes[i].Rule, takes[i].Key)
	}
	return spent
}

// cancelled checks calls with a context that has ended: they must return an error and charge nothing.
func cancelled(o *opener) error {
	p := o.probe()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	late, stop := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer stop()
	for _, a := range algorithms {
		rule := a.rule(a.name, 5, long)
		for _, ended := range []context.Context{ctx, late} {
			err := p.store.Apply(ended, []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, make([]sluice.Decision, 1))
			if !errors.Is(err, ended.Err()) {
				return fmt.Errorf("%s: Apply with an ended context returned error %v, want %v", a.name, err, ended.Err())
			}
		}
		limiter := sluice.Must(sluice.NewWithRules(p.store, []*sluice.Rule{rule}))
		if _, err := limiter.Allow(ctx, "k"); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s: a limiter's call with an ended context returned error %v", a.name, err)
		}
		p.expect(a.name+": usage after calls with an ended context", p.spent(rule, "k"), 0)
		if keys, ok := p.store.(sluice.StoreAdmin); ok && !o.caps.NoAdmin {
			p.take(rule, "k", 5)
			if err := keys.Reset(ctx, sluice.Bucket{Rule: rule, Key: "k"}); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%s: Reset with an ended context returned error %v", a.name, err)
			}
			if err := keys.Block(ctx, sluice.Bucket{Rule: rule, Key: "other"}, time.Hour); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%s: Block with an ended context returned error %v", a.name, err)
			}
			p.expect(a.name+": usage after a Reset with an ended context", p.spent(rule, "k"), 5)
			p.expect(a.name+": usage after a Block with an ended context", p.spent(rule, "other"), 0)
		}
	}
	return p.fault()
}

// oddCalls checks calls without takes, with more room for decisions than takes, and with invalid takes, which must
// charge nothing.
func oddCalls(o *opener) error {
	p := o.probe()
	rule := newRule("r", sluice.Per(5, long).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest))
	p.apply()
	out := make([]sluice.Decision, 3)
	out[2].Granted = 77
	if err := p.store.Apply(context.Background(), []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, out); err != nil {
		return err
	}
	if !out[0].Allowed || out[2].Granted != 77 {
		return fmt.Errorf("with more room for decisions than takes: %s, and the last is %v, want the zero value", describe(&out[0]), out[2])
	}
	limit := sluice.Per(5, long)
	for what, bad := range map[string]sluice.Take{
		"Cost above MaxCost":       {Rule: rule, Key: "k", Cost: sluice.MaxCost + 1},
		"refund without Receipt":   {Rule: rule, Key: "k", Cost: -1},
		"MinGrant above Cost":      {Rule: rule, Key: "k", Cost: 1, MinGrant: 2},
		"negative MinGrant":        {Rule: rule, Key: "k", Cost: 1, MinGrant: -1},
		"negative MaxDelay":        {Rule: rule, Key: "k", Cost: 1, MaxDelay: -1},
		"rule not made by NewRule": {Rule: &sluice.Rule{Name: "r"}, Key: "k", Cost: 1},
		"limit not made by Build":  {Rule: rule, Limit: &limit, Key: "k", Cost: 1},
		"no rule":                  {Key: "k", Cost: 1},
	} {
		err := p.store.Apply(context.Background(), []sluice.Take{{Rule: rule, Key: "k", Cost: 1}, bad}, make([]sluice.Decision, 2))
		if !errors.Is(err, sluice.ErrInvalid) {
			return fmt.Errorf("%s: error %v, want one that wraps sluice.ErrInvalid", what, err)
		}
	}
	p.expect("usage after invalid calls", p.spent(rule, "k"), 1)
	return p.fault()
}

// onceByID checks that of many calls with the same idempotency ID one is charged, and that all get its decision.
func onceByID(o *opener) error {
	p := o.probe()
	rule := newRule("ids", sluice.Per(10, long).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest))
	other := newRule("other", sluice.Per(10, long))
	err := together(callers, func(i int) {
		for id := range uint64(3) {
			out := p.apply(
				sluice.Take{Rule: rule, Key: "k", Cost: 2, IdempotencyID: id + 1},
				sluice.Take{Rule: other, Key: "k", Cost: 1, IdempotencyID: id + 1},
			)
			if !out[0].Allowed || out[0].Granted != 2 || !out[1].Allowed {
				p.failf("take with an idempotency ID: want it allowed with the charged cost:\n%s\n%s", describe(&out[0]), describe(&out[1]))
			}
		}
	})
	if err != nil {
		return err
	}
	p.expect("usage of 3 IDs with cost 2, each sent 32 times", p.spent(rule, "k"), 6)
	p.expect("usage of 3 IDs with cost 1, each sent 32 times", p.spent(other, "k"), 3)
	return p.fault()
}
