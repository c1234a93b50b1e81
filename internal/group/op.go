package group

import "github.com/sluiceproject/sluice/internal/step"

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

// Peeks reports whether the op only asks. The settlement of a take that cost what was estimated does not: its mark goes.
func (op *Op) Peeks() bool {
	return op.Request.Cost == 0 && (op.At == 0 || !op.Request.Settles || op.Request.Dry)
}

// Look asks what there is and changes nothing.
func (op *Op) Look() step.Request { return step.Request{Dry: true, Known: op.Request.Known} }

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
