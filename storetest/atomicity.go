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

// transfer has many callers take from two buckets at once, some naming one first and some the other. They never lock
// each other out, and at every moment both have been charged the same: all or nothing.
func transfer(o *opener) error {
	p := o.probe()
	a := newRule("a", sluice.Per(150, long).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest))
	b := newRule("b", sluice.Per(120, long))
	if o.caps.RealClock { // a caller who has read the clock a moment ago finds a bucket less full
		b = newRule("b", sluice.Per(120, long).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest))
	}
	var both atomic.Int64
	err := together(callers, func(i int) {
		for j := range 12 {
			takes := []sluice.Take{{Rule: a, Key: "x", Cost: 1}, {Rule: b, Key: "x", Cost: 1}}
			switch {
			case i%4 == 1:
				takes[0], takes[1] = takes[1], takes[0]
			case i%4 == 2 && j%2 == 0: // others come and go between them
				takes = append(takes, sluice.Take{Rule: a, Key: fmt.Sprint(i), Cost: 1})
			case i%4 == 3 && !o.caps.NonAtomicKeys:
				sameCharge(p, a, b)
				continue
			}
			out := p.apply(takes...)
			if out[0].Granted != out[1].Granted {
				p.failf("one take was charged and the other not:\n%s\n%s", describe(&out[0]), describe(&out[1]))
			}
			both.Add(out[0].Granted)
		}
	})
	if err != nil {
		return err
	}
	if o.caps.NonAtomicKeys { // each may have seen what another was about to give back
		both.Add(p.admittedByBoth(a, b))
	}
	p.inBounds("admitted by both, of which one has 120", both.Load(), 120, o.caps.Overshoot)
	p.expect("spent of the one with 150", p.spent(a, "x"), both.Load())
	p.expect("spent of the one with 120", p.spent(b, "x"), both.Load())
	return p.fault()
}

// admittedByBoth uses up what is left of both.
func (p *probe) admittedByBoth(a, b *sluice.Rule) (granted int64) {
	for range 150 {
		granted += p.apply(sluice.Take{Rule: a, Key: "x", Cost: 1}, sluice.Take{Rule: b, Key: "x", Cost: 1})[0].Granted
	}
	return granted
}

// sameCharge looks at both buckets at once.
func sameCharge(p *probe, a, b *sluice.Rule) {
	out := p.apply(sluice.Take{Rule: a, Key: "x"}, sluice.Take{Rule: b, Key: "x"})
	if one, other := 150-out[0].Remaining, 120-out[1].Remaining; one != other {
		p.failf("at one moment %d were spent of one bucket and %d of the other", one, other)
	}
}

// allOrNothing makes up calls of several takes on several keys, in any order: if one is denied none is charged, and
// the order does not matter.
func allOrNothing(o *opener) error {
	rng := rand.New(rand.NewPCG(3, 0xA11))
	one, other := o.probe(), o.probe() // the same calls, the takes in another order
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
				return fmt.Errorf("call %d: in another order another answer:\n%s\n%s", call, describe(&d), describe(&out[order[i]]))
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

// cancelled calls with a context that has ended: an error, and nothing is charged.
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
				return fmt.Errorf("%s: a call whose context has ended returned error %v, want %v", a.name, err, ended.Err())
			}
		}
		limiter := sluice.Must(sluice.NewWithRules(p.store, []*sluice.Rule{rule}))
		if _, err := limiter.Allow(ctx, "k"); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s: a limiter's call whose context has ended returned error %v", a.name, err)
		}
		p.expect(a.name+": spent by calls whose context had ended", p.spent(rule, "k"), 0)
		if keys, ok := p.store.(sluice.StoreAdmin); ok && !o.caps.NoAdmin {
			p.take(rule, "k", 5)
			if err := keys.Reset(ctx, sluice.Bucket{Rule: rule, Key: "k"}); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%s: reset with a context that has ended returned error %v", a.name, err)
			}
			if err := keys.Block(ctx, sluice.Bucket{Rule: rule, Key: "other"}, time.Hour); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%s: block with a context that has ended returned error %v", a.name, err)
			}
			p.expect(a.name+": spent, after a reset whose context had ended", p.spent(rule, "k"), 5)
			p.expect(a.name+": spent, after a block whose context had ended", p.spent(rule, "other"), 0)
		}
	}
	return p.fault()
}

// oddCalls: no takes at all; more room for answers than takes; calls that make no sense, which charge nothing.
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
		return fmt.Errorf("with more room for answers than takes: %s, and the last is %v", describe(&out[0]), out[2])
	}
	limit := sluice.Per(5, long)
	for what, bad := range map[string]sluice.Take{
		"cost beyond 2^50":        {Rule: rule, Key: "k", Cost: sluice.MaxCost + 1},
		"giving back nothing":     {Rule: rule, Key: "k", Cost: -1},
		"min beyond cost":         {Rule: rule, Key: "k", Cost: 1, MinGrant: 2},
		"a negative min":          {Rule: rule, Key: "k", Cost: 1, MinGrant: -1},
		"a negative delay":        {Rule: rule, Key: "k", Cost: 1, MaxDelay: -1},
		"a rule that is not made": {Rule: &sluice.Rule{Name: "r"}, Key: "k", Cost: 1},
		"a limit that is not":     {Rule: rule, Limit: &limit, Key: "k", Cost: 1},
		"no rule":                 {Key: "k", Cost: 1},
	} {
		err := p.store.Apply(context.Background(), []sluice.Take{{Rule: rule, Key: "k", Cost: 1}, bad}, make([]sluice.Decision, 2))
		if !errors.Is(err, sluice.ErrInvalid) {
			return fmt.Errorf("%s: error %v, want one that wraps ErrInvalid", what, err)
		}
	}
	p.expect("spent, after calls that made no sense", p.spent(rule, "k"), 1)
	return p.fault()
}

// onceByID has many callers send the same take: one of them is charged, and all get its answer.
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
				p.failf("a take that was charged was answered\n%s\n%s", describe(&out[0]), describe(&out[1]))
			}
		}
	})
	if err != nil {
		return err
	}
	p.expect("spent by 3 IDs of cost 2, each sent 32 times", p.spent(rule, "k"), 6)
	p.expect("spent by 3 IDs of cost 1, each sent 32 times", p.spent(other, "k"), 3)
	return p.fault()
}
