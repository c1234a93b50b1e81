package sluice

import (
	"context"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/private"
)

// maxSettleMemory bounds how long the store remembers that a reservation was settled, see settleOnce, and for how long after
// a take a bucket is given back what the take did not need.
const maxSettleMemory = private.MaxSettleMemory

// Settlement returns the take that settles t at its actual cost, where d is the decision of [Limiter.Decide] about t. It
// reports false if there is nothing to settle, because nothing was charged. Of a [Concurrency] limit the permit is given
// back whole, whatever the actual cost is.
//
// Set Settles of a take that is to be settled: without it less is given back.
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

// settleOnce is [Limiter.Settle] with an id, for settlements that arrive over a network and so perhaps twice.
//
// The store remembers the id for at least as long as the duration, at most maxSettleMemory. Settling the same id again, in
// any process that shares the store, changes nothing and returns false.
//
// Forgiven is what the takes together were not charged because of the cap on debt; see [Events].
//
// While a [RemoteStore] is unavailable settleOnce returns an error that wraps [ErrUnavailable]. The settlement is kept,
// with up to 10,000 others, and sent when the store is available, but not later than the duration says. It may also be
// sent again by the caller: it is settled once.
func (l *Limiter) settleOnce(ctx context.Context, id string, remember time.Duration, takes []Take) (settled bool, forgiven int64, err error) {
	if err := l.validate(); err != nil {
		return false, 0, err
	}
	switch {
	case id == "":
		return false, 0, fmt.Errorf("%w: settle: the id is empty: pass one that no other settlement has", ErrInvalid)
	case remember <= 0 || remember > maxSettleMemory:
		return false, 0, fmt.Errorf("%w: settle: remember for %v: use more than 0 and at most %v", ErrInvalid, remember, maxSettleMemory)
	}
	ops, err := settlementOps(takes)
	if err != nil {
		return false, 0, err
	}
	once := settlementRule.info.Op(settlementLimit(remember).params, id, "", 1)
	return l.engine.SettleOnce(ctx, once, ops, time.Now().Add(remember))
}

// settlementOps says settlements in integers. It returns an error if one of the takes settles nothing.
func settlementOps(takes []Take) ([]group.Op, error) {
	ops := make([]group.Op, len(takes))
	for i := range takes {
		if err := takes[i].op(&ops[i]); err != nil {
			return nil, err
		}
		if takes[i].Receipt == 0 {
			return nil, fmt.Errorf("%w: settle: take %d names no earlier one: make it with Take.Settlement", ErrInvalid, i)
		}
	}
	return ops, nil
}

// Settle replaces what takes were charged by what they really cost. It is [Reservation.Settle] for those who decide with
// [Limiter.Decide] and settle in another call or another process. [Take.Settlement] makes the takes; their Cost is the
// difference: negative gives back what has not worn off, positive charges on top and may go into debt. It does not notice if
// it is done twice.
//
// While a [RemoteStore] is unavailable it returns nil if the settlement is kept and sent later, which is so for up to
// 10,000 settlements.
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

// settlementRule counts settlements: of each id one fits. The names of rules in files hold no NUL.
var settlementRule = Must(NewRule(Rule{Name: "\x00settled", Limit: *settlementLimits[0]}))

// settlementLimits are windows that begin with the settlement. There are several, so that stores are not filled with ids
// that nobody could use any more.
var settlementLimits = func() (all []*Limit) {
	for window := 2 * time.Minute; ; window *= 2 {
		once := Limit{Count: 1, Window: min(window, maxSettleMemory), Algorithm: FixedWindow, Align: AlignFirstRequest}
		all = append(all, Must(once.Build()))
		if window >= maxSettleMemory {
			return all
		}
	}
}()

// settlementLimit is the shortest that remembers for long enough.
func settlementLimit(remember time.Duration) *Limit {
	for _, l := range settlementLimits {
		if l.Window >= remember {
			return l
		}
	}
	return settlementLimits[len(settlementLimits)-1]
}
