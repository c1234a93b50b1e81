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

// Begins reports whether the op starts the new bucket of a key without one, even if nothing is charged. Peeks, refunds and
// settlements do not.
func (op *Op) Begins() bool {
	return op.Params.HasInitial && op.At == 0 && op.Request.Cost > 0 && !op.Request.DryRun
}

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

// Answer is a decision about one op, and where it came from.
type Answer struct {
	Allowed, Never, Blocked       bool
	Source                        Source
	Limit                         int64
	Granted, Remaining, At        int64
	Delay, RetryAfter, ResetAfter time.Duration
}

// AnswerOf is an algorithm's answer under the numbers p.
func AnswerOf(p *step.Params, a *step.Answer) Answer {
	return Answer{
		Allowed: a.Allowed, Never: a.Never, Blocked: a.Blocked,
		Limit: p.Limit(), Granted: a.Granted, Remaining: a.Remaining, At: a.At,
		RetryAfter: time.Duration(a.RetryAfter) * time.Microsecond,
		ResetAfter: time.Duration(a.ResetAfter) * time.Microsecond,
		Delay:      time.Duration(a.Delay) * time.Microsecond,
	}
}

// IdempotencyTTL is for how long a store remembers the ID of a take that was charged, in microseconds.
const IdempotencyTTL = 60 * 1_000_000

// Charged is what a store remembers of a take with an ID.
type Charged struct {
	At      int64 // what its answer said
	Until   int64 // when it is forgotten
	Granted int64
	Denied  bool
}

// Again is the request whose answer Replay needs if the take was denied.
func (op *Op) Again() step.Request {
	r := op.Request
	r.DryRun = true
	return r
}

// Replay answers an op whose ID was charged before: as it was then, with what remains now. Found is what [Op.Look] finds
// now; again, if the take was denied, is the answer to [Op.Again].
func (k *Charged) Replay(op *Op, found, again step.Answer, now int64) step.Answer {
	a := found
	a.Allowed, a.Never, a.Delay, a.RetryAfter = !k.Denied, false, 0, 0
	a.Blocked = a.Blocked && k.Denied
	a.Granted, a.At = k.Granted, k.At
	kind := op.Params.Kind
	switch {
	case k.Denied: // and stays so until the ID is forgotten
		if a.Never = again.Never; !a.Never {
			a.RetryAfter = max(k.Until-now, again.RetryAfter)
		}
	case op.At == 0 && (kind == step.Bucket || kind == step.Interval):
		a.Delay = max(0, a.At-now) // of its place
	}
	return a
}

// Cell names a state within a call: takes with equal cells are about the same one.
type Cell struct{ A, B uint64 }

// Task is one op on its way through a call. The store sets its Cell.
type Task struct {
	Cell     Cell
	Replayed bool // it was charged before, has the answer of then, and is not charged again

	places bool // it gets a place in the cell's queue, if there is one
	id     uint64
	spends int64 // what it adds to the cost of later takes on the cell, if it is allowed
}

// Call is the decision about the ops of one call. Out has a place for the answer to each.
type Call struct {
	Tasks []Task
	Out   []step.Answer

	// Of the op that was asked about last.
	pending int64 // what earlier takes of the call spend on its cell
	behind  int64 // how long after now the last of them will have left a queue
}

// Ask returns what to look up for an op, with what earlier takes of the call spend on top. If there is nothing to look up,
// the op is answered.
func (c *Call) Ask(i int, op *Op) (r step.Request, ask bool) {
	t := &c.Tasks[i]
	*t = Task{Cell: t.Cell, id: op.ID}
	c.pending, c.behind = 0, 0
	if op.At != 0 {
		t.spends = max(0, op.Request.Cost) // a settlement counts in full, though some of it may have worn off
		c.Out[i] = step.Answer{Allowed: true, At: op.At}
		return r, false
	}
	for j := range c.Tasks[:i] {
		other := &c.Tasks[j]
		if other.Cell != t.Cell || !c.Out[j].Allowed || other.Replayed {
			continue
		}
		if op.ID != 0 && op.ID == other.id { // it came twice in one call
			c.Out[i], t.Replayed = c.Out[j], true
			return r, false
		}
		c.pending += other.spends
		if other.places {
			c.behind = c.Out[j].ResetAfter
		}
	}
	r = op.Request
	r.DryRun = true
	if r.Cost > 0 {
		r.Cost += c.pending
	}
	if r.Min > 0 {
		r.Min += c.pending
	}
	return r, true
}

// Answered notes that Out[i] is what was found for Ask's request. If late, the op's place in a queue would be behind those
// of earlier takes of the call, later than it accepts: Out[i] must be what [Op.Look] finds, and TooLate is called.
func (c *Call) Answered(i int, op *Op) (late bool) {
	t, a := &c.Tasks[i], &c.Out[i]
	if !a.Allowed || op.Request.Cost == 0 {
		return false
	}
	a.Granted -= c.pending
	t.spends, t.places = a.Granted, true
	return op.Params.Queue && op.Request.MaxDelay > 0 && c.behind > op.Request.MaxDelay
}

// TooLate makes of what there is the denial of an op whose place would be too late.
func (c *Call) TooLate(i int, op *Op, now int64) {
	a := &c.Out[i]
	a.Allowed, a.Delay, a.At, a.RetryAfter = false, 0, now, c.behind-op.Request.MaxDelay
}

// Change is what is to be done about an op.
type Change uint8

const (
	Nothing Change = iota
	Look           // nothing is charged because of another's denial: what Op.Look finds, put through Unspent, is the answer
	Adjust         // settle or give back an earlier take
	Charge         // take what is asked for
)

// Commit says what is to be done about an op. If adopt, first a state that was written under other numbers is rewritten,
// because its answer counts on the new ones, and nothing else will do so. Likewise the new bucket of a key without one
// starts if [Op.Begins].
func (c *Call) Commit(i int, op *Op, veto bool) (adopt bool, do Change) {
	allowed, charge := c.Out[i].Allowed, op.Request.Charge
	switch {
	case c.Tasks[i].Replayed || op.Peeks() || !allowed && !charge:
		return !op.Request.DryRun, Nothing
	case veto && !charge && op.At != 0:
		return !op.Request.DryRun, Nothing
	case veto && !charge:
		return !op.Request.DryRun, Look
	case op.At != 0:
		return false, Adjust
	}
	return false, Charge
}

// Unspent answers an op that would have passed and was not charged, because another was denied. It would have had the
// place at; found is what there is without it.
func Unspent(found step.Answer, at int64) step.Answer {
	found.Allowed, found.RetryAfter, found.At = true, 0, at
	return found
}

// Blocked answers an op about a key that is blocked until then. Free is the answer if it were not, and idle what there is.
func Blocked(free, idle *step.Answer, now, until int64) step.Answer {
	a := step.Answer{Never: free.Never, Blocked: true, ResetAfter: max(until-now, idle.ResetAfter), At: now}
	if !a.Never {
		a.RetryAfter = max(until-now, free.RetryAfter)
	}
	return a
}
