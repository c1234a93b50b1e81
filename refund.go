package sluice

import (
	"context"
	"fmt"

	"github.com/sluiceproject/sluice/internal/group"
)

// refund gives back what earlier takes charged that no receipt names. The takes have negative costs: -5 gives back 5, at most
// what is counted now. Granted of the decisions is what was given back, as a negative number. No fail mode answers for a
// store that cannot: then it returns an error, and so little is known as of any call that was not answered. Events are not
// told.
//
// It is for limits that know what is counted now: not for a SlidingWindowLog, which has no entry to take it from, a
// LeakyQueue, whose places are promises, nor Concurrency. Of a rule with AccuracyLease on a [RemoteStore] it would give back
// what processes hold and have not spent.
func (l *Limiter) refund(ctx context.Context, takes []Take, out []Decision) error {
	if err := l.validate(); err != nil {
		return err
	}
	off := l.suspended.Load()
	var looks []group.Op
	var back []int64
	var at []int
	for i := range takes {
		t := takes[i]
		if t.Cost >= 0 || t.Cost < -MaxCost {
			return fmt.Errorf("%w: refund: take %d has a cost of %d: write one from -2^50 to -1", ErrInvalid, i, t.Cost)
		}
		if off != nil && t.Rule != nil && (*off)[ruleOf(t.Rule.Name)] {
			out[i] = Decision{Allowed: true, Source: SourceSuspended, Limit: t.EffectiveLimit().Max(), Rule: t.Rule}
			continue
		}
		var op group.Op
		if err := (&Take{Rule: t.Rule, Limit: t.Limit, Key: t.Key, HashTag: t.HashTag, DryRun: true}).op(&op); err != nil {
			return fmt.Errorf("refund: take %d: %w", i, err)
		}
		looks, back, at = append(looks, op), append(back, -t.Cost), append(at, i)
	}
	answers := make([]group.Answer, len(looks))
	if err := l.engine.Refund(ctx, looks, back, answers); err != nil {
		return err
	}
	for j, i := range at {
		out[i].set(&answers[j])
		out[i].Rule = takes[i].Rule
	}
	return nil
}
