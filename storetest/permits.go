package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
)

// permitChecks returns the checks of concurrency limits.
func permitChecks() []check {
	return []check{
		{"Permits/Contention", permitsContended, need{exact: true}},
		{"Permits/Expiry", permitsOfCrashed, need{clock: true}},
		{"Permits/ReleasedTwice", permitsReleasedTwice, need{}},
		{"Permits/Renewed", permitsRenewed, need{clock: true}},
	}
}

func permitRule(name string, n int64, lease time.Duration) *sluice.Rule {
	return newRule(name, sluice.Concurrent(n).WithPermitTTL(lease))
}

// again returns a take that refers to an earlier one by its receipt.
func again(r *sluice.Rule, key string, at, cost int64) sluice.Take {
	return sluice.Take{Rule: r, Key: key, Receipt: at, Cost: cost}
}

// permitsContended checks concurrent callers that hold a permit for a while, sometimes renew it, and release it, some
// of them twice: never more than the limit may hold a permit.
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
					p.failf("a held permit was not renewed: %s", describe(&renewed))
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
		p.failf("%d callers held a permit at the same time with a limit of 5, %d in total", most.Load(), held.Load())
	}
	p.expect("free permits after all releases", p.peek(rule, "k").Remaining, 5)
	return p.fault()
}

// permitsOfCrashed checks that a permit that is neither renewed nor released expires exactly after its TTL.
func permitsOfCrashed(o *opener) error {
	p := o.probe()
	rule := permitRule("dead", 3, 10*time.Second)
	for i := range 3 {
		p.at(time.Duration(i) * time.Second)
		p.expect("granted", p.take(rule, "k", 1).Granted, 1)
	}
	for i := range 3 {
		p.at(time.Duration(i)*time.Second + 10*time.Second - time.Microsecond)
		p.expect("free permits before the TTL ends", p.peek(rule, "k").Remaining, int64(i))
		p.at(time.Duration(i)*time.Second + 10*time.Second)
		p.expect("free permits when the TTL ends", p.peek(rule, "k").Remaining, int64(i+1))
	}
	if n, ok := p.store.(interface{ Len() int }); ok {
		p.at(time.Hour)
		p.expect("Len after all permits have expired", int64(n.Len()), 0)
	}
	return p.fault()
}

// permitsReleasedTwice checks that a second release does not free another permit, even immediately after the first.
func permitsReleasedTwice(o *opener) error {
	p := o.probe()
	rule := permitRule("twice", 2, time.Hour)
	for range 50 {
		mine := p.take(rule, "k", 1)
		p.apply(again(rule, "k", mine.Receipt, -1))
		yours := p.take(rule, "k", 1)
		if mine.Receipt == yours.Receipt {
			return fmt.Errorf("two permits have the same receipt: %s", describe(&yours))
		}
		twice := p.apply(again(rule, "k", mine.Receipt, -1))[0]
		p.expect("permits released the second time", twice.Granted, 0)
		p.expect("free permits while another is held", twice.Remaining, 1)
		p.apply(again(rule, "k", yours.Receipt, -1))
	}
	p.expect("free permits at the end", p.peek(rule, "k").Remaining, 2)
	return p.fault()
}

// permitsRenewed checks that renewing keeps a permit for another TTL, and that renewing an expired permit acquires it
// again, unless others hold it.
func permitsRenewed(o *opener) error {
	p := o.probe()
	rule := permitRule("renewed", 1, 10*time.Second)
	at := p.take(rule, "k", 1).Receipt
	for i := range 5 {
		p.at(time.Duration(i+1) * 6 * time.Second)
		d := p.apply(again(rule, "k", at, 1))[0]
		if !d.Allowed || d.Granted != 0 || d.Remaining != 0 || p.take(rule, "k", 1).Allowed {
			return fmt.Errorf("renewal %d: %s", i+1, describe(&d))
		}
		at = d.Receipt
	}
	p.at(time.Minute) // it has expired
	anew := p.apply(again(rule, "k", at, 1))[0]
	if !anew.Allowed || anew.Granted != 1 {
		return fmt.Errorf("an expired permit was not acquired again: %s", describe(&anew))
	}
	lost := p.apply(again(rule, "k", at, 1))[0]
	if lost.Allowed || lost.RetryAfter != 10*time.Second || lost.Remaining != 0 {
		return fmt.Errorf("an expired permit was renewed, though another holds it: %s", describe(&lost))
	}
	return p.fault()
}
