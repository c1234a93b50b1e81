package sluice

import (
	"context"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/private"
)

// maxSettleMemory bounds how long a store keeps a settlement's ID, see settleOnce, and for how long after a take
// its unused part is refunded to a bucket.
const maxSettleMemory = private.MaxSettleMemory

// Settlement returns the take that settles t at its actual cost, where d is the decision of [Limiter.Decide] about t.
// It returns false if there is nothing to settle because nothing was charged. The permit of a [Concurrency] limit is
// released whole, whatever the actual cost.
//
// Set t.Settles before t is decided. Otherwise less may be refunded.
func (t *Take) Settlement(d *Decision, actual int64) (Take, bool) {
	if d.Granted <= 0 || d.Source > SourceFailLocal || t.Receipt != 0 {
		return Take{}, false
	}
	if t.EffectiveLimit().Algorithm == Concurrency {
		actual = 0
	}
	return Take{
		Rule: t.Rule, Limit: t.Limit, Key: t.Key, HashTag: t.HashTag, Cost: actual - d.Granted,
		Receipt: d.Receipt, Charged: d.Granted, ChargedOf: d.Limit, Settles: t.Settles, local: d.Source == SourceFailLocal,
	}, true
}

// settleOnce is [Limiter.Settle] with an ID, for settlements that may arrive twice over a network.
//
// The store keeps the ID for at least remember, which is at most maxSettleMemory. Settling the same ID again, in
// any instance that shares the store, changes nothing and returns false.
//
// forgiven is the total cost that was not charged because of the maximum negative balance; see [Events].
//
// While a [RemoteStore] is unavailable, settleOnce returns an error that wraps [ErrUnavailable]. The settlement stays
// pending, as one of up to 10,000, and is sent when the store is available, at most remember later. The caller may also
// send it again: it is settled once.
func (l *Limiter) settleOnce(ctx context.Context, id string, remember time.Duration, takes []Take) (settled bool, forgiven int64, err error) {
	if err := l.validate(); err != nil {
		return false, 0, err
	}
	switch {
	case id == "":
		return false, 0, fmt.Errorf("%w: settle: ID is empty: use a unique ID", ErrInvalid)
	case remember <= 0 || remember > maxSettleMemory:
		return false, 0, fmt.Errorf("%w: settle: remember %v: use more than 0 and at most %v", ErrInvalid, remember, maxSettleMemory)
	}
	ops, err := settlementOps(takes)
	if err != nil {
		return false, 0, err
	}
	once := settlementRule.info.Op(settlementLimit(remember).params, id, "", 1)
	return l.engine.SettleOnce(ctx, once, ops, time.Now().Add(remember))
}

// settlementOps converts settlements to ops. It returns an error for a take without a receipt.
func settlementOps(takes []Take) ([]group.Op, error) {
	ops := make([]group.Op, len(takes))
	for i := range takes {
		if err := takes[i].op(&ops[i]); err != nil {
			return nil, err
		}
		if takes[i].Receipt == 0 {
			return nil, fmt.Errorf("%w: settle: take %d has no receipt: create it with Take.Settlement", ErrInvalid, i)
		}
	}
	return ops, nil
}

// Settle replaces the charges of takes with their actual costs. It is [Reservation.Settle] for callers that decide with
// [Limiter.Decide] and settle in another call or another process. [Take.Settlement] creates the takes. Their Cost is
// the difference: a negative one refunds the part that has not expired, a positive one is charged regardless of the
// limit and may make the balance negative. Settle does not detect that takes are settled twice.
//
// While a [RemoteStore] is unavailable, Settle returns nil if the settlement stays pending, as one of up to 10,000. It
// is sent when the store is available.
func (l *Limiter) Settle(ctx context.Context, takes []Take) error {
	if err := l.validate(); err != nil {
		return err
	}
	ops, err := settlementOps(takes)
	if err != nil {
		return err
	}
	kept, err := l.engine.Settle(ctx, l.engine.NewSettlement(ops, time.Now().Add(maxSettleMemory)))
	if kept {
		return nil
	}
	return err
}

// settlementRule counts settlements, one per ID. Its name differs from all rules in files, whose names contain no NUL.
var settlementRule = Must(NewRule(Rule{Name: "\x00settled", Limit: *settlementLimits[0]}))

// settlementLimits are windows that begin with the settlement. There are several lengths, so that stores do not keep
// IDs longer than needed.
var settlementLimits = func() (all []*Limit) {
	for window := 2 * time.Minute; ; window *= 2 {
		once := Limit{Count: 1, Window: min(window, maxSettleMemory), Algorithm: FixedWindow, Align: AlignFirstRequest}
		all = append(all, Must(once.Build()))
		if window >= maxSettleMemory {
			return all
		}
	}
}()

// settlementLimit returns the limit with the shortest sufficient window.
func settlementLimit(remember time.Duration) *Limit {
	for _, l := range settlementLimits {
		if l.Window >= remember {
			return l
		}
	}
	return settlementLimits[len(settlementLimits)-1]
}
