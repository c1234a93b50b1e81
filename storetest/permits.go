package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
)

// permitChecks are for limits on what is in flight.
func permitChecks() []check {
	return []check{
		{"Slots/Contention", permitsContended, need{exact: true}},
		{"Slots/DeadHolders", permitsOfCrashed, need{clock: true}},
		{"Slots/ReleasedTwice", permitsReleasedTwice, need{}},
		{"Slots/Renewed", permitsRenewed, need{clock: true}},
	}
}

func permitRule(name string, n int64, lease time.Duration) *sluice.Rule {
	return newRule(name, sluice.Concurrent(n).WithPermitTTL(lease))
}

// again names a take by what it was answered.
func again(r *sluice.Rule, key string, at, cost int64) sluice.Take {
	return sluice.Take{Rule: r, Key: key, Receipt: at, Cost: cost}
}

// permitsContended has many callers hold a slot for a while, renew it now and then and release it, some twice: a counter of
// their own never sees more than the limit.
func permitsContended(o *opener) error {
	p := o.probe()
	rule := permitRule("contended", 5, time.Hour)
	var holding, most, held atomic.Int64
	err := together(callers, func(i int) {
		rng := rand.New(rand.NewPCG(uint64(i), 0x510))
		for range 20 {
			d := p.take(rule, "k", 1)
			if !d.Allowed {
				continue
			}
			held.Add(1)
			now := holding.Add(1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
			}
			if rng.IntN(2) == 0 {
				renewed := p.apply(again(rule, "k", d.Receipt, 1))[0]
				if !renewed.Allowed || renewed.Granted != 0 {
					p.failf("a slot that is held was not renewed: %s", describe(&renewed))
				}
				d.Receipt = renewed.Receipt
			}
			holding.Add(-1)
			for range 1 + rng.IntN(2) {
				p.apply(again(rule, "k", d.Receipt, -1))
			}
		}
	})
	if err != nil {
		return err
	}
	if most.Load() > 5 || held.Load() < 5 {
		p.failf("%d at a time held a slot of 5, %d in all", most.Load(), held.Load())
	}
	p.expect("free when all have gone", p.peek(rule, "k").Remaining, 5)
	return p.fault()
}

// permitsOfCrashed: what nobody renews or releases is free when its lease ends, and not sooner.
func permitsOfCrashed(o *opener) error {
	p := o.probe()
	rule := permitRule("dead", 3, 10*time.Second)
	for i := range 3 {
		p.at(time.Duration(i) * time.Second)
		p.expect("granted", p.take(rule, "k", 1).Granted, 1)
	}
	for i := range 3 {
		p.at(time.Duration(i)*time.Second + 10*time.Second - time.Microsecond)
		p.expect("free before the lease ends", p.peek(rule, "k").Remaining, int64(i))
		p.at(time.Duration(i)*time.Second + 10*time.Second)
		p.expect("free when the lease ends", p.peek(rule, "k").Remaining, int64(i+1))
	}
	if n, ok := p.store.(interface{ Len() int }); ok {
		p.at(time.Hour)
		p.expect("keys that are left of the dead", int64(n.Len()), 0)
	}
	return p.fault()
}

// permitsReleasedTwice: a second release frees nobody else's slot, however fast one comes after the other.
func permitsReleasedTwice(o *opener) error {
	p := o.probe()
	rule := permitRule("twice", 2, time.Hour)
	for range 50 {
		mine := p.take(rule, "k", 1)
		p.apply(again(rule, "k", mine.Receipt, -1))
		yours := p.take(rule, "k", 1)
		if mine.Receipt == yours.Receipt {
			return fmt.Errorf("two slots of one name: %s", describe(&yours))
		}
		twice := p.apply(again(rule, "k", mine.Receipt, -1))[0]
		p.expect("given back the second time", twice.Granted, 0)
		p.expect("free while another holds one", twice.Remaining, 1)
		p.apply(again(rule, "k", yours.Receipt, -1))
	}
	p.expect("free in the end", p.peek(rule, "k").Remaining, 2)
	return p.fault()
}

// permitsRenewed: renewing keeps a slot for another lease; one that is gone is taken anew, or not if others have it.
func permitsRenewed(o *opener) error {
	p := o.probe()
	rule := permitRule("renewed", 1, 10*time.Second)
	at := p.take(rule, "k", 1).Receipt
	for i := range 5 {
		p.at(time.Duration(i+1) * 6 * time.Second)
		d := p.apply(again(rule, "k", at, 1))[0]
		if !d.Allowed || d.Granted != 0 || d.Remaining != 0 || p.take(rule, "k", 1).Allowed {
			return fmt.Errorf("renewed for the %d. time: %s", i+1, describe(&d))
		}
		at = d.Receipt
	}
	p.at(time.Minute) // it has lapsed meanwhile
	anew := p.apply(again(rule, "k", at, 1))[0]
	if !anew.Allowed || anew.Granted != 1 {
		return fmt.Errorf("what had lapsed was not taken anew: %s", describe(&anew))
	}
	lost := p.apply(again(rule, "k", at, 1))[0]
	if lost.Allowed || lost.RetryAfter != 10*time.Second || lost.Remaining != 0 {
		return fmt.Errorf("what had lapsed was renewed though another has it: %s", describe(&lost))
	}
	return p.fault()
}
