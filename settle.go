package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// MaxSettle bounds how long the store remembers that a reservation was settled, see [Limiter.SettleOnce], and for how
// long after a take a bucket is given back what the take did not need.
const MaxSettle = 2 * time.Hour

// Settlement returns the take that settles t at its actual cost, where d is the decision of [Limiter.Decide] about t. It
// reports false if there is nothing to settle, because nothing was charged. Of a [Concurrency] limit the slot is given
// back whole, whatever the actual cost is.
//
// Set Settles of a take that is to be settled: without it less is given back.
func (t *Take) Settlement(d *Decision, actual int64) (Take, bool) {
	if d.Granted <= 0 || d.Source > SourceLocal || t.At != 0 {
		return Take{}, false
	}
	if t.Effective().Algorithm == Concurrency {
		actual = 0
	}
	return Take{
		Rule: t.Rule, Limit: t.Limit, Key: t.Key, Slot: t.Slot, Cost: actual - d.Granted,
		At: d.At, Charged: d.Granted, Of: d.Limit, Settles: t.Settles, local: d.Source == SourceLocal,
	}, true
}

// SettleOnce replaces what takes were charged by what they really cost. It is [Reservation.Settle] for those who decide
// with [Limiter.Decide] and settle in another call or another process. [Take.Settlement] makes the takes; their Cost is
// the difference: negative gives back what has not worn off, positive charges on top and may go into debt.
//
// The store remembers the id for at least as long as the duration, at most [MaxSettle]. Settling the same id again, in
// any process that shares the store, changes nothing and returns false.
//
// Forgiven is what the takes together were not charged because of the cap on debt; see [Events].
//
// While a [Remote] store is unavailable SettleOnce returns an error that wraps [ErrUnavailable]. The settlement is kept,
// with up to 10,000 others, and sent when the store is available, but not later than the duration says. It may also be
// sent again by the caller: it is settled once.
func (l *Limiter) SettleOnce(ctx context.Context, id string, remember time.Duration, takes []Take) (settled bool, forgiven int64, err error) {
	if err := l.sound(); err != nil {
		return false, 0, err
	}
	switch {
	case id == "":
		return false, 0, fmt.Errorf("%w: settle: the id is empty: pass one that no other settlement has", ErrInvalid)
	case remember <= 0 || remember > MaxSettle:
		return false, 0, fmt.Errorf("%w: settle: remember for %v: use more than 0 and at most %v", ErrInvalid, remember, MaxSettle)
	}
	if err := soundSettlements(takes); err != nil {
		return false, 0, err
	}
	s := l.settlementOnce(id, remember, takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told {
		return false, 0, nil
	}
	forgiven, err = l.settleLocked(ctx, s)
	s.told = s.id == ""
	switch {
	case errors.Is(err, errSettledBefore):
		return false, 0, nil
	case err != nil && s.kept && s.told: // it is the first, and the rest of it is sent again
		return true, forgiven, nil
	case err != nil && s.kept:
		err = fmt.Errorf("%w (the settlement is kept and sent when the store is available)", err)
	}
	return s.told, forgiven, err
}

// soundSettlements returns an error if one of the takes settles nothing.
func soundSettlements(takes []Take) error {
	for i := range takes {
		if _, err := takes[i].Op(); err != nil {
			return err
		}
		if takes[i].At == 0 {
			return fmt.Errorf("%w: settle: take %d names no earlier one: make it with Take.Settlement", ErrInvalid, i)
		}
	}
	return nil
}

// Settle replaces what takes were charged by what they really cost, as [Limiter.SettleOnce] does. It does not notice if
// it is done twice.
//
// While a [Remote] store is unavailable it returns nil if the settlement is kept and sent later, which is so for up to
// 10,000 settlements.
func (l *Limiter) Settle(ctx context.Context, takes []Take) error {
	if err := l.sound(); err != nil {
		return err
	}
	if err := soundSettlements(takes); err != nil {
		return err
	}
	s := l.newSettlement(takes, time.Now().Add(MaxSettle))
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := l.settleLocked(ctx, s)
	if s.kept {
		return nil
	}
	return err
}

// settleHere settles takes that were decided in this process while the store was unavailable. It returns the takes that
// are left for the store.
func (l *Limiter) settleHere(ctx context.Context, takes []Take) []Take {
	rest := make([]Take, 0, len(takes))
	for i := range takes {
		t := &takes[i]
		if !t.local {
			rest = append(rest, *t)
			continue
		}
		var d Decision
		if late := l.settleLocal(t, &d); late != nil {
			rest = append(rest, *late)
		} else {
			l.forgive(ctx, t, &d)
		}
	}
	return rest
}

// forgive reports what a settlement was not charged because of the cap.
func (l *Limiter) forgive(ctx context.Context, t *Take, d *Decision) int64 {
	n := t.Cost - max(0, d.Granted)
	if t.Cost <= 0 || n <= 0 {
		return 0
	}
	if l.events.Forgiven != nil {
		l.events.Forgiven(ctx, *t, n)
	}
	return n
}

// settleLocal settles a take that was decided in this process while the store was unavailable. The store was not charged
// for it: what was admitted is charged later, see debts, and less of it if the take cost less. What it cost beyond its
// estimate is returned as a charge for the store.
func (l *Limiter) settleLocal(t *Take, d *Decision) (late *Take) {
	part := *t
	part.Limit = l.shareOf(t.Effective())
	op, err := part.Op()
	if err != nil { // it was checked before
		return nil
	}
	now, local := time.Now(), l.local.open()
	op.Request.Known = t.Rule.Known(&local.Rules).With(op.Params)
	var answer [1]step.Answer
	local.Apply(now.UnixMicro(), []group.Op{op}, answer[:])
	*d = Answered(op.Params, &answer[0])
	d.Source = SourceLocal
	if l.guard == nil || t.Effective().Algorithm == Concurrency {
		return nil
	}
	if t.Cost <= 0 {
		l.debts.lower(t, -t.Cost)
		return nil
	}
	return &Take{Rule: t.Rule, Limit: t.Limit, Key: t.Key, Slot: t.Slot, Cost: t.Cost, At: t.At, ID: t.ID}
}

// settled counts settlements: of each id one fits. The names of rules in files hold no NUL.
var settled = Must(NewRule(Rule{Name: "\x00settled", Limit: *settledLimits[0]}))

// settledLimits are windows that begin with the settlement. There are several, so that stores are not filled with ids
// that nobody could use any more.
var settledLimits = func() (all []*Limit) {
	for window := 2 * time.Minute; ; window *= 2 {
		once := Limit{Count: 1, Window: min(window, MaxSettle), Algorithm: FixedWindow, Align: AlignFirstHit}
		all = append(all, Must(once.Build()))
		if window >= MaxSettle {
			return all
		}
	}
}()

// settledLimit is the shortest that remembers for long enough.
func settledLimit(remember time.Duration) *Limit {
	for _, l := range settledLimits {
		if l.Window >= remember {
			return l
		}
	}
	return settledLimits[len(settledLimits)-1]
}
