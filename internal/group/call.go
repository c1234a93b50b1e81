package group

import "github.com/sluiceproject/sluice/internal/step"

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
// because its answer counts on the new ones, and nothing else will do so.
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
