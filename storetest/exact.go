package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
)

const (
	callers = 32
	// long is a window in which no quota is replenished during a check, on any clock.
	long = 30 * 24 * time.Hour
)

// exact checks that 32 concurrent callers of one key are admitted exactly the limit, never more, and that no quota is
// lost.
func exact(a algorithm) func(o *opener) error {
	return func(o *opener) error {
		const limit, each = 100, 10
		p := o.probe()
		rule := a.rule("exact", limit, long)
		limiter, err := sluice.NewWithRules(p.store, []*sluice.Rule{rule})
		if err != nil {
			return err
		}
		var granted, heavy atomic.Int64
		err = together(callers, func(i int) {
			for j := range each {
				if i%2 == 0 {
					granted.Add(p.take(rule, "plain", 1).Granted)
				} else {
					d, err := limiter.Allow(context.Background(), "plain")
					if err != nil || d.Source != sluice.SourceStore {
						p.failf("Allow: source %v, error %w", d.Source, err)
					}
					granted.Add(d.Granted)
				}
				heavy.Add(p.take(rule, "heavy", int64(1+(i+j)%7)).Granted)
			}
		})
		if err != nil {
			return err
		}
		p.inBounds("admitted of 320 concurrent takes", granted.Load(), limit, o.caps.Overshoot)
		// Takes of cost 1 continue until the end, so that all of the limit is used.
		p.inBounds("admitted cost of concurrent takes of 1 to 7", heavy.Load()+p.admitted(rule, "heavy", limit, 1), limit, o.caps.Overshoot)
		p.expect("remaining", p.peek(rule, "plain").Remaining, 0)
		return p.fault()
	}
}

// inBounds records an error unless a count is want, or exceeds it by at most the declared overshoot.
func (p *probe) inBounds(what string, got, want, overshoot int64) {
	if got < want || got > want+overshoot {
		p.failf("%s: %d, want %d (or at most %d more)", what, got, want, overshoot)
	}
}

// exactMoving checks concurrent callers while the clock moves: the admitted total must obey the algorithm's bound for
// the elapsed time.
func exactMoving(a algorithm) func(o *opener) error {
	return func(o *opener) error {
		const limit, each = 20, 60
		window := time.Second
		p := o.probe()
		rule := a.rule("moving", limit, window)
		var granted, passed atomic.Int64
		err := together(callers, func(i int) {
			for range each {
				if i == 0 {
					p.clock.Advance(window / 50)
					passed.Add(1)
				}
				granted.Add(p.take(rule, "k", 1).Granted)
			}
		})
		if err != nil {
			return err
		}
		windows := passed.Load()/50 + 1
		if most := limit * (windows + 2); granted.Load() > most+o.caps.Overshoot {
			p.failf("admitted %d in %d windows with a limit of %d", granted.Load(), windows, limit)
		}
		if granted.Load() < limit {
			p.failf("admitted %d, want at least the %d available at the start", granted.Load(), limit)
		}
		return p.fault()
	}
}

// subSecond checks windows below one second with the same exactness, to the microsecond.
func subSecond(o *opener) error {
	for _, window := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 500 * time.Millisecond, 999 * time.Millisecond} {
		for _, a := range algorithms {
			if a.name == "sliding_counter_subwindows" && window < 5*time.Millisecond {
				continue
			}
			p := o.probe()
			// The clock starts at a whole second, which is the start of each of these windows.
			rule := a.rule("sub", 5, window)
			p.inBounds(fmt.Sprintf("%s of 5/%v: admitted of 50 at once", a.name, window), p.admitted(rule, "k", 50, 1), 5, o.caps.Overshoot)
			denied := p.take(rule, "k", 1)
			if denied.Allowed || denied.RetryAfter <= 0 || denied.RetryAfter > 2*window {
				p.failf("%s of 5/%v, exhausted: %s", a.name, window, describe(&denied))
			}
			p.clock.Advance(denied.RetryAfter - time.Microsecond)
			if early := p.take(rule, "k", 1); early.Allowed {
				p.failf("%s of 5/%v: allowed 1 µs before RetryAfter", a.name, window)
			}
			p.clock.Advance(time.Microsecond)
			if late := p.take(rule, "k", 1); !late.Allowed {
				p.failf("%s of 5/%v: denied at RetryAfter: %s", a.name, window, describe(&late))
			}
			if err := p.fault(); err != nil {
				return err
			}
		}
	}
	return nil
}
