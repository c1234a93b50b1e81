package sluice

import (
	"context"
	"fmt"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/permit"
)

// Permit is what a caller in flight holds of [Concurrency] limits. It renews itself each third of the lease until it is
// released; what a process holds that dies is free when the lease ends. A nil Permit holds nothing, and to release it or
// any other twice does nothing.
//
// A store that fails is tolerated: a renewal and a release are tried again, and a slot that lapsed meanwhile is taken
// anew if there is room. If there is none its holder goes on, and for as long more are in flight than the limit says.
type Permit struct{ permit permit.Permit }

// Acquire spends one on the key under all of the limiter's rules, as Allow does, and holds what is to be held of
// [Concurrency] limits until the slot is released. The slot is nil if the decision is not allowed.
//
//	slot, d, err := limiter.Acquire(ctx, key)
//	if err != nil || !d.Allowed {
//		…
//	}
//	defer slot.Release(ctx)
//
// RetryAfter of a denial is when the first lease ends; there may be room long before, whenever somebody is done.
func (l *Limiter) Acquire(ctx context.Context, key string) (*Permit, Decision, error) {
	if len(l.Rules()) == 0 {
		return nil, Decision{}, fmt.Errorf("%w: this limiter has no rules: use Decide and Hold", ErrInvalid)
	}
	takes, out := make([]Take, len(l.rules)), make([]Decision, len(l.rules))
	for i, rule := range l.rules {
		takes[i] = Take{Rule: rule, Key: key, Cost: 1}
	}
	if l.opts.limitFor != nil {
		takes[0].Limit = l.opts.limitFor(ctx, key)
	}
	allowed, err := l.Decide(ctx, takes, out)
	if err != nil {
		return nil, Decision{}, err
	}
	slot := l.Hold(takes, out)
	if !allowed {
		slot.Release(ctx)
		slot = nil
	}
	return slot, out[MostRestrictive(out)], nil
}

// Hold keeps what takes that [Limiter.Decide] decided were granted of [Concurrency] limits, until it is released. It
// returns nil if that is nothing. The takes' keys are copied.
func (l *Limiter) Hold(takes []Take, out []Decision) *Permit {
	var s *Permit
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
		if s == nil {
			s = &Permit{}
		}
		l.permits.Add(&s.permit, op, &answer)
	}
	if s != nil {
		l.permits.Start(&s.permit)
	}
	return s
}

// Release gives the slot back. It does so though the context has ended, and does not wait for a store that fails.
func (s *Permit) Release(ctx context.Context) {
	if s != nil {
		s.permit.Release(ctx)
	}
}
