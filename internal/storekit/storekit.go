// Package storekit converts takes to ops and answers to decisions for the stores of this repository.
//
// Package sluice does both as well, for remote stores. The stores do not call it through the function variables of
// package private, because the compiler cannot see through those: every caller's takes and decisions would be allocated
// on the heap.
package storekit

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/step"
)

// SetOp validates a take and converts it to op.
func SetOp(op *group.Op, t *sluice.Take) error {
	var rule *group.Rule
	if t.Rule != nil {
		rule = private.RuleOf(t.Rule)
	}
	if rule == nil {
		return group.ErrRule
	}
	p := private.ParamsOf(t.EffectiveLimit())
	if p == nil {
		return group.ErrLimit
	}
	*op = rule.Op(p, t.Key, t.HashTag, t.Cost)
	op.Request.Min, op.Request.DryRun, op.Request.Settles = t.MinGrant, t.DryRun, t.Settles
	op.At, op.Charged, op.Of, op.ID = t.Receipt, t.Charged, t.ChargedOf, t.IdempotencyID
	return op.Validate(t.MaxDelay)
}

// Validate returns an error if a take is invalid.
func Validate(t *sluice.Take) error { return SetOp(new(group.Op), t) }

// FastTake returns the rule and numbers of a take that has only a cost, and nil for other takes.
func FastTake(t *sluice.Take) (*group.Rule, *step.Params) {
	if t.Rule == nil || t.Rule.ChargeDenied || t.MinGrant != 0 || t.MaxDelay != 0 || t.Receipt != 0 || t.IdempotencyID != 0 || t.Settles || t.DryRun {
		return nil, nil
	}
	p := private.ParamsOf(t.EffectiveLimit())
	if p == nil || !p.HasFast() || t.Cost <= 0 || t.Cost > p.Limit() {
		return nil, nil
	}
	return private.RuleOf(t.Rule), p
}

// SetDecision converts an answer to a decision.
func SetDecision(d *sluice.Decision, a *group.Answer) {
	*d = sluice.Decision{
		Allowed: a.Allowed, ExceedsLimit: a.Never, Blocked: a.Blocked, Source: sluice.Source(a.Source),
		Limit: a.Limit, Granted: a.Granted, Remaining: a.Remaining, Receipt: a.At,
		Delay: a.Delay, RetryAfter: a.RetryAfter, ResetAfter: a.ResetAfter,
	}
}

// Apply decides takes with the engine of the store of that name.
func Apply(ctx context.Context, name string, by private.Engine, takes []sluice.Take, out []sluice.Decision) error {
	b, ok := buffers.Get().(*buffer)
	if !ok {
		b = new(buffer)
	}
	defer buffers.Put(b)
	b.ops = slices.Grow(b.ops[:0], len(takes))[:len(takes)]
	b.answers = slices.Grow(b.answers[:0], len(takes))[:len(takes)]
	defer clear(b.ops) // so that the pool does not retain the keys
	for i := range takes {
		if err := SetOp(&b.ops[i], &takes[i]); err != nil {
			return fmt.Errorf("%s: take %d: %w", name, i, err)
		}
	}
	if err := by.ApplyOps(ctx, b.ops, b.answers); err != nil {
		return err
	}
	for i := range b.answers {
		SetDecision(&out[i], &b.answers[i])
	}
	return nil
}

// buffer is the reusable buffer of one call of Apply.
type buffer struct {
	ops     []group.Op
	answers []group.Answer
}

var buffers sync.Pool
