package storetest

import (
	"fmt"
	"sync/atomic"
)

// noRace checks two concurrent callers of a limit of 10 for lost updates. At a usage of 3 both are allowed and the
// usage is 5 afterwards; at 9 one is allowed and the usage is 10.
func noRace(a algorithm) func(o *opener) error {
	return func(o *opener) error {
		p := o.probe()
		rule := a.rule("race", 10, long)
		for i := range 30 {
			key := fmt.Sprint("k", i)
			atOnce := func() int64 {
				var granted atomic.Int64
				if err := together(2, func(int) { granted.Add(p.take(rule, key, 1).Granted) }); err != nil {
					p.failf("%w", err)
				}
				return granted.Load()
			}
			p.admitted(rule, key, 3, 1)
			p.expect("admitted of two concurrent takes, at a usage of 3 of 10", atOnce(), 2)
			p.expect("usage after two concurrent takes, at a usage of 3", p.spent(rule, key), 5)
			p.admitted(rule, key, 4, 1)
			p.inBounds("admitted of two concurrent takes, at a usage of 9 of 10", atOnce(), 1, o.caps.Overshoot)
			p.inBounds("usage after two concurrent takes, at a usage of 9", p.spent(rule, key), 10, o.caps.Overshoot)
		}
		return p.fault()
	}
}
