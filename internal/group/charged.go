package group

import "github.com/sluiceproject/sluice/internal/step"

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
