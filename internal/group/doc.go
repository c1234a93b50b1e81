// Package group decides what the takes of one call are to each other. Takes on the same state come after each other, one
// that is denied denies them all, and a take that came before is not charged again.
//
// It is a pure state machine: it holds no states, reads no clock and takes no lock. A store asks it what to look up, tells
// it what it found, and is told what to change. For each take:
//
//	r, ask := c.Ask(i, op)        // unless the store remembers the take's ID: then Charged.Replay answers
//	c.Out[i] = …look up r…
//	if c.Answered(i, op) { … }    // it would come too late: see TooLate
//	veto = veto || op.Vetoes(&c.Out[i])
//
// and when all are answered, for each take again:
//
//	adopt, do := c.Commit(i, op, veto)
//
// A store with one take that is not unusual needs none of this.
package group
