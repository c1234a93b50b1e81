package sluice

import (
	"context"
	"fmt"

	"github.com/sluiceproject/sluice/internal/group"
)

// refund refunds charges of earlier takes without their receipts. The takes have negative costs: -5 refunds 5, at most
// the current usage. Granted of a decision is the refunded amount as a negative number. No fail mode applies: if the
// store is unavailable refund returns an error, and the refund may or may not have happened. Events are not called.
//
// refund needs a limit whose current usage can be reduced: not a SlidingWindowLog, which has no entry to remove, a
// LeakyQueue, whose places are promised, or a Concurrency limit. For a rule with AccuracyLease on a [RemoteStore] it
// would refund leased quota that instances have not used.
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
			return fmt.Errorf("%w: refund: take %d: cost %d: use -2^50 to -1", ErrInvalid, i, t.Cost)
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
