// Package group decides the takes of one call together. Takes on the same state apply one after the other, a denied
// take denies all of them, and a take that is repeated with its idempotency ID is not charged again.
//
// It is a pure state machine: it has no storage, no clock and no locks. A store queries it for the request to look up,
// passes the result, and receives the change to make. For each take:
//
//	r, ask := c.Ask(i, op)        // unless the store has the take's ID: then Charged.Replay decides
//	c.Out[i] = …look up r…
//	if c.Answered(i, op) { … }    // its place would be too late: see TooLate
//	veto = veto || op.Vetoes(&c.Out[i])
//
// and when all are decided, for each take again:
//
//	adopt, do := c.Commit(i, op, veto)
//
// A store needs none of this for a single ordinary take.
package group
