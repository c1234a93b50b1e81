package sluice

import (
	"context"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/permit"
)

// Permit is a permit of one or more [Concurrency] limits. It is renewed every TTL/3 until Release; permits of a crashed
// process expire after the TTL. The methods of a nil or zero Permit do nothing; Release may be called twice.
//
// Store failures are tolerated: renewals and releases are retried, and a permit that has expired is acquired again if
// there is room. If there is none, the holder continues, and the requests in flight exceed the limit until it releases.
type Permit struct{ permit permit.Permit }

// Acquire decides a take of cost 1 for key under all of the limiter's rules, as Allow does, and renews the permits of
// [Concurrency] limits until the returned permit is released. The permit is nil if the take is denied.
//
//	permit, d, err := limiter.Acquire(ctx, key)
//	if err != nil || !d.Allowed {
//		…
//	}
//	defer permit.Release(ctx)
//
// RetryAfter of a denial is the time until the first permit expires. There may be room earlier, whenever a permit is
// released.
func (l *Limiter) Acquire(ctx context.Context, key string) (*Permit, Decision, error) {
	if err := l.validateRules("ReserveTakes"); err != nil {
		return nil, Decision{}, err
	}
	takes, out := l.Takes(ctx, nil, key, 1), make([]Decision, len(l.rules))
	allowed, err := l.Decide(ctx, takes, out)
	if err != nil {
		return nil, Decision{}, err
	}
	p := l.holdPermits(takes, out)
	if !allowed {
		p.Release(ctx)
		p = nil
	}
	return p, out[MostRestrictive(out)], nil
}

// holdPermits returns a permit for the [Concurrency] limits among the granted decisions, or nil if there are none. It
// copies the takes' keys.
func (l *Limiter) holdPermits(takes []Take, out []Decision) *Permit {
	var p *Permit
	for i := range takes {
		t := &takes[i]
		if t.EffectiveLimit().Algorithm != Concurrency || out[i].Granted <= 0 {
			continue
		}
		var op group.Op
		err := t.op(&op)
		answer := answerOf(&out[i])
		if err != nil || !permit.Holds(&op, &answer) {
			continue
		}
		if p == nil {
			p = &Permit{}
		}
		l.permits.Add(&p.permit, op, &answer)
	}
	if p != nil {
		l.permits.Start(&p.permit)
	}
	return p
}

// Release releases the permit. It works even if ctx is done, and does not wait for an unavailable store.
func (p *Permit) Release(ctx context.Context) {
	if p != nil {
		p.permit.Release(ctx)
	}
}
