package group

import (
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

// RuleID is a digest of a rule's name. It is a struct because arrays are not passed in registers.
type RuleID struct{ A, B uint64 }

// Op is a take with all values as integers: a key under a rule, and a request.
type Op struct {
	Rule    RuleID
	By      *Rule // the rule with the ID Rule; nil in packages that only count
	Key     string
	HashTag string // shared by the keys of one call
	Params  *step.Params
	Request step.Request
	At      int64  // non-zero: receipt of an earlier take, which this op settles or refunds
	Charged int64  // with At: cost charged for that take; 0 if unknown
	Of      int64  // with At: limit when it was charged; 0 if unchanged
	ID      uint64 // idempotency ID; 0 if none
	Shadow  bool   // never denies the other ops of the call
	Local   bool   // with At: that take was decided by local fallback
}

// ErrRule and ErrLimit are returned for takes that cannot be converted to an op.
var (
	ErrRule  = fmt.Errorf("%w: take: rule was not created by NewRule", ErrInvalid)
	ErrLimit = fmt.Errorf("%w: take: limit was not created by Limit.Build", ErrInvalid)
)

// Validate sets the maximum delay of the op. It returns an error, in terms of a sluice.Take, if the op is invalid.
func (op *Op) Validate(maxDelay time.Duration) error {
	r := &op.Request
	switch {
	case r.Cost > MaxCost || r.Cost < -MaxCost:
		return fmt.Errorf("%w: cost %d is not between -2^50 and 2^50", ErrInvalid, r.Cost)
	case r.Cost < 0 && op.At == 0:
		return fmt.Errorf("%w: negative cost without Receipt: a refund needs the Decision.Receipt of the earlier take", ErrInvalid)
	case r.Min < 0 || r.Min > 0 && r.Min > r.Cost:
		return fmt.Errorf("%w: MinGrant %d is not between 0 and the cost %d", ErrInvalid, r.Min, r.Cost)
	case r.DryRun && r.Cost != 0:
		return fmt.Errorf("%w: DryRun with cost %d: use cost 0", ErrInvalid, r.Cost)
	case op.Charged < 0 || op.Charged > MaxCost:
		return fmt.Errorf("%w: Charged %d is not between 0 and 2^50", ErrInvalid, op.Charged)
	case op.Of < 0:
		return fmt.Errorf("%w: ChargedOf %d is negative: use Decision.Limit of the earlier take", ErrInvalid, op.Of)
	case maxDelay < 0:
		return fmt.Errorf("%w: MaxDelay %v is negative: use at least 0", ErrInvalid, maxDelay)
	}
	r.MaxDelay = min(maxDelay, MaxDelay).Microseconds()
	return nil
}

// Peeks reports whether the op only reads. A settlement at the estimated cost does not peek, because it deletes the
// mark.
func (op *Op) Peeks() bool {
	return op.Request.Cost == 0 && (op.At == 0 || !op.Request.Settles || op.Request.DryRun)
}

// Look returns the request that reads the state without changing it.
func (op *Op) Look() step.Request { return step.Request{DryRun: true, Known: op.Request.Known} }

// Begins reports whether the op creates the bucket of a new key even if nothing is charged. Peeks, refunds and
// settlements do not.
func (op *Op) Begins() bool {
	return op.Params.HasInitial && op.At == 0 && op.Request.Cost > 0 && !op.Request.DryRun
}

// Settlement returns the op, which has At, as a settlement for the algorithms.
func (op *Op) Settlement() step.Settlement {
	return step.Settlement{
		At: op.At, Delta: op.Request.Cost, Charged: op.Charged, Of: op.Of, Settles: op.Request.Settles,
		Known: op.Request.Known,
	}
}

// Vetoes reports whether the decision about the op denies the whole call.
func (op *Op) Vetoes(a *step.Answer) bool {
	return !a.Allowed && !op.Shadow && op.Request.Cost != 0
}

// Answer is the decision about one op, and its source.
type Answer struct {
	Allowed, Never, Blocked       bool
	Source                        Source
	Limit                         int64
	Granted, Remaining, At        int64
	Delay, RetryAfter, ResetAfter time.Duration
}

// AnswerOf converts the decision of an algorithm under the numbers p.
func AnswerOf(p *step.Params, a *step.Answer) Answer {
	return Answer{
		Allowed: a.Allowed, Never: a.Never, Blocked: a.Blocked,
		Limit: p.Limit(), Granted: a.Granted, Remaining: a.Remaining, At: a.At,
		RetryAfter: time.Duration(a.RetryAfter) * time.Microsecond,
		ResetAfter: time.Duration(a.ResetAfter) * time.Microsecond,
		Delay:      time.Duration(a.Delay) * time.Microsecond,
	}
}

// IdempotencyTTL is how long a store keeps the idempotency ID of a charged take, in microseconds.
const IdempotencyTTL = 60 * 1_000_000

// Charged is a store's record of a take with an idempotency ID.
type Charged struct {
	At      int64 // receipt of the take
	Until   int64 // time at which the record expires
	Granted int64
	Denied  bool
}

// Again returns the request whose decision Replay needs if the take was denied.
func (op *Op) Again() step.Request {
	r := op.Request
	r.DryRun = true
	return r
}

// Replay decides an op whose ID was charged before: as it was decided then, with the quota that remains now. found is
// the current result of [Op.Look]. If the take was denied, again is the current result of [Op.Again].
func (k *Charged) Replay(op *Op, found, again step.Answer, now int64) step.Answer {
	a := found
	a.Allowed, a.Never, a.Delay, a.RetryAfter = !k.Denied, false, 0, 0
	a.Blocked = a.Blocked && k.Denied
	a.Granted, a.At = k.Granted, k.At
	kind := op.Params.Kind
	switch {
	case k.Denied: // denied until the record expires
		if a.Never = again.Never; !a.Never {
			a.RetryAfter = max(k.Until-now, again.RetryAfter)
		}
	case op.At == 0 && (kind == step.Bucket || kind == step.Interval):
		a.Delay = max(0, a.At-now) // until its place
	}
	return a
}

// Cell identifies a state within a call: ops with equal cells share a state.
type Cell struct{ A, B uint64 }

// Task is the progress of one op through a call. The store sets its Cell.
type Task struct {
	Cell     Cell
	Replayed bool // charged before: has the decision of that time and is not charged again

	places bool // has a place in the cell's queue, if there is one
	id     uint64
	spends int64 // if allowed, the cost it adds to later ops on the cell
}

// Call decides the ops of one call. Out has an element for the decision about each.
type Call struct {
	Tasks []Task
	Out   []step.Answer

	// Of the op passed to the last Ask.
	pending int64 // cost of earlier ops of the call on its cell
	behind  int64 // time from now until the last of them has left the queue
}

// Ask returns the request to look up for an op, with the cost of earlier ops of the call added. If ask is false there
// is nothing to look up, and the op is decided.
func (c *Call) Ask(i int, op *Op) (r step.Request, ask bool) {
	t := &c.Tasks[i]
	*t = Task{Cell: t.Cell, id: op.ID}
	c.pending, c.behind = 0, 0
	if op.At != 0 {
		t.spends = max(0, op.Request.Cost) // a settlement counts in full, though part of it may have expired
		c.Out[i] = step.Answer{Allowed: true, At: op.At}
		return r, false
	}
	for j := range c.Tasks[:i] {
		other := &c.Tasks[j]
		if other.Cell != t.Cell || !c.Out[j].Allowed || other.Replayed {
			continue
		}
		if op.ID != 0 && op.ID == other.id { // the same ID twice in one call
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

// Answered records that Out[i] is the result of Ask's request. It reports whether the op's place in a queue, behind those
// of earlier ops of the call, is later than the op accepts. Then the store must set Out[i] to the result of [Op.Look] and
// call TooLate.
func (c *Call) Answered(i int, op *Op) (late bool) {
	t, a := &c.Tasks[i], &c.Out[i]
	if !a.Allowed || op.Request.Cost == 0 {
		return false
	}
	a.Granted -= c.pending
	t.spends, t.places = a.Granted, true
	return op.Params.Queue && op.Request.MaxDelay > 0 && c.behind > op.Request.MaxDelay
}

// TooLate turns Out[i] into the denial of an op whose place would be too late.
func (c *Call) TooLate(i int, op *Op, now int64) {
	a := &c.Out[i]
	a.Allowed, a.Delay, a.At, a.RetryAfter = false, 0, now, c.behind-op.Request.MaxDelay
}

// Change is the change that a store makes for an op.
type Change uint8

const (
	Nothing Change = iota
	Look           // nothing is charged, because another op was denied: the decision is Unspent of what Op.Look finds
	Adjust         // settle or refund an earlier take
	Charge         // charge the request
)

// Commit returns the change to make for an op. If adopt, the store first rewrites a state that was written under other
// numbers, because the decision assumes the new ones and nothing else rewrites it. If [Op.Begins], it also creates the
// bucket of a new key.
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

// Unspent returns the decision about an op that was within its limit and not charged, because another op was denied.
// found is the state without the op, and at the place that it would have had.
func Unspent(found step.Answer, at int64) step.Answer {
	found.Allowed, found.RetryAfter, found.At = true, 0, at
	return found
}

// Blocked returns the decision about an op for a key that is blocked until a time. free is the decision without the
// block, and idle the current state.
func Blocked(free, idle *step.Answer, now, until int64) step.Answer {
	a := step.Answer{Never: free.Never, Blocked: true, ResetAfter: max(until-now, idle.ResetAfter), At: now}
	if !a.Never {
		a.RetryAfter = max(until-now, free.RetryAfter)
	}
	return a
}
