package sluice

import (
	"context"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/permit"
)

// Permit is a permit of one or more [Concurrency] limits. It is renewed every third of its TTL until Release; permits of a
// crashed process expire after the TTL. A nil or zero Permit holds nothing, and Release of it does nothing; Release may be
// called twice.
//
// A store that fails is tolerated: a renewal and a release are tried again, and a permit that expired meanwhile is acquired
// again if there is room. If there is none its holder goes on, and for as long more are in flight than the limit says.
type Permit struct{ permit permit.Permit }

// Acquire spends one on the key under all of the limiter's rules, as Allow does, and holds what is to be held of
// [Concurrency] limits until the permit is released. The permit is nil if the decision is not allowed.
//
//	permit, d, err := limiter.Acquire(ctx, key)
//	if err != nil || !d.Allowed {
//		…
//	}
//	defer permit.Release(ctx)
//
// RetryAfter of a denial is when the first permit expires; there may be room long before, whenever one is released.
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

// holdPermits returns a permit for what the decisions granted of [Concurrency] limits, or nil if that is nothing. The takes'
// keys are copied.
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

// Release gives the permit back. It does so though the context has ended, and does not wait for a store that fails.
func (p *Permit) Release(ctx context.Context) {
	if p != nil {
		p.permit.Release(ctx)
	}
}
