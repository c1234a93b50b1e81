package storetest

import (
	"fmt"
	"sync/atomic"
)

// noRace is the worked example of two callers who read a counter at the same time: at 3, both count, and it is 5
// afterwards; at 9 of 10, one is admitted, and 10 are recorded.
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
			p.expect("admitted of two at once, at 3 of 10", atOnce(), 2)
			p.expect("the counter after two at once, at 3", p.spent(rule, key), 5)
			p.admitted(rule, key, 4, 1)
			p.inBounds("admitted of two at once, at 9 of 10", atOnce(), 1, o.caps.Overshoot)
			p.inBounds("the counter after two at once, at 9", p.spent(rule, key), 10, o.caps.Overshoot)
		}
		return p.fault()
	}
}
