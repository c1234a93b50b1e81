package sluice

import (
	"context"
	"fmt"
	"time"
)

// MaxSettle bounds how long it is remembered that something was settled; see [Limiter.SettleOnce].
const MaxSettle = 2 * time.Hour

// SettleOnce replaces what takes were charged by what they really cost. It is [Reservation.Settle] for those who decide
// with [Limiter.Decide] and settle in another call or another process. Each take names what [Limiter.Decide] charged by
// its At, and its Cost is the difference: negative gives back what has not worn off, positive charges on top and may go
// into debt. Takes with a cost of 0 are left alone.
//
// The store remembers the id for at least as long as the duration, at most [MaxSettle]. Who settles the same id
// again, in any process that shares the store, changes nothing and gets false.
//
// After an error the charge may stay what it was, and wears off like any other: it is not known how far the call got, and
// better too much is counted than something given back twice.
func (l *Limiter) SettleOnce(ctx context.Context, id string, remember time.Duration, takes []Take) (bool, error) {
	if err := l.sound(); err != nil {
		return false, err
	}
	switch {
	case id == "":
		return false, fmt.Errorf("%w: settle: the id is empty: pass one that no other settlement has", ErrInvalid)
	case remember <= 0 || remember > MaxSettle:
		return false, fmt.Errorf("%w: settle: remember for %v: use more than 0 and at most %v", ErrInvalid, remember, MaxSettle)
	}
	for i := range takes {
		if _, err := takes[i].Op(); err != nil {
			return false, err
		}
		if takes[i].At == 0 {
			return false, fmt.Errorf("%w: settle: take %d names no earlier one: set At to its Decision.At", ErrInvalid, i)
		}
	}
	// Two calls, because not every store changes keys that live apart in one step.
	first, out := []Take{{Rule: settled, Limit: settledLimit(remember), Key: id, Cost: 1}}, make([]Decision, 1)
	if err := l.applyWithin(ctx, first, out); err != nil {
		return false, err
	}
	if !out[0].Allowed {
		return false, nil
	}
	due := make([]Take, 0, len(takes))
	for i := range takes {
		if takes[i].Cost != 0 {
			due = append(due, takes[i])
		}
	}
	if len(due) == 0 {
		return true, nil
	}
	return true, l.settle(ctx, due)
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
