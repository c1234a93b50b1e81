package group

import (
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

// RuleID is a digest of a rule's name. It is a struct because arrays do not travel in registers.
type RuleID struct{ A, B uint64 }

// Op is one take in integers: a key under a rule, and what is asked of it.
type Op struct {
	Rule    RuleID
	By      *Rule // of which Rule is the ID; nil to those who only count
	Key     string
	HashTag string // what the keys of one call share
	Params  *step.Params
	Request step.Request
	At      int64  // non-zero: settle or give back the take that was answered with this At
	Charged int64  // with At: what that take was charged; 0 if it is not known
	Of      int64  // with At: the limit when it was charged; 0 if it is still that
	ID      uint64 // non-zero: charge once
	Shadow  bool   // never vetoes the others
	Local   bool   // with At: the take was decided in this process while the store was unavailable
}

// ErrRule and ErrLimit are said of takes that cannot be said in integers.
var (
	ErrRule  = fmt.Errorf("%w: the take's rule was not made by NewRule", ErrInvalid)
	ErrLimit = fmt.Errorf("%w: the take's limit was not made by Limit.Build", ErrInvalid)
)

// Validate sets how long the op would wait, and tells what of it makes no sense, in the words of a sluice.Take.
func (op *Op) Validate(maxDelay time.Duration) error {
	r := &op.Request
	switch {
	case r.Cost > MaxCost || r.Cost < -MaxCost:
		return fmt.Errorf("%w: cost %d is beyond ±2^50", ErrInvalid, r.Cost)
	case r.Cost < 0 && op.At == 0:
		return fmt.Errorf("%w: a negative cost gives back an earlier take: set Receipt to its Decision.Receipt", ErrInvalid)
	case r.Min < 0 || r.Min > 0 && r.Min > r.Cost:
		return fmt.Errorf("%w: MinGrant %d is not between 0 and the cost %d", ErrInvalid, r.Min, r.Cost)
	case r.DryRun && r.Cost != 0:
		return fmt.Errorf("%w: DryRun with a cost of %d: only a peek can be a dry run", ErrInvalid, r.Cost)
	case op.Charged < 0 || op.Charged > MaxCost:
		return fmt.Errorf("%w: Charged %d is not between 0 and 2^50", ErrInvalid, op.Charged)
	case op.Of < 0:
		return fmt.Errorf("%w: ChargedOf %d is negative: it is the limit when the take of Receipt was charged", ErrInvalid, op.Of)
	case maxDelay < 0:
		return fmt.Errorf("%w: MaxDelay %v is negative", ErrInvalid, maxDelay)
	}
	r.MaxDelay = min(maxDelay, MaxDelay).Microseconds()
	return nil
}

// Peeks reports whether the op only asks. The settlement of a take that cost what was estimated does not: its mark goes.
func (op *Op) Peeks() bool {
	return op.Request.Cost == 0 && (op.At == 0 || !op.Request.Settles || op.Request.DryRun)
}

// Look asks what there is and changes nothing.
func (op *Op) Look() step.Request { return step.Request{DryRun: true, Known: op.Request.Known} }

// Settlement is the op with At as the algorithms have it.
func (op *Op) Settlement() step.Settlement {
	return step.Settlement{
		At: op.At, Delta: op.Request.Cost, Charged: op.Charged, Of: op.Of, Settles: op.Request.Settles,
		Known: op.Request.Known,
	}
}

// Vetoes reports whether the answer to the op denies the whole call.
func (op *Op) Vetoes(a *step.Answer) bool {
	return !a.Allowed && !op.Shadow && op.Request.Cost != 0
}
