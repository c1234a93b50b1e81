package memcachestore

import (
	"github.com/sluiceproject/sluice/internal/step"
	"github.com/sluiceproject/sluice/internal/table"
)

// task is one op on its way through a call.
type task struct {
	unit     *unit
	known    *table.Known // of the op's rule on its server
	charge   string       // the name of where its ID is remembered, if the item has no more room
	spilled  *charge      // what was found there
	pending  int64        // what earlier takes of this call spend on the same bucket
	replayed bool
	denied   bool // for good: others have been charged accordingly
}

// decide answers the ops of the units in hand and changes nothing.
func (c *call) decide(now int64) {
	for i := range c.ops {
		if c.tasks[i].unit.inHand {
			c.decideOne(i, now)
		}
	}
}

// decideOne answers one op. Takes on the same bucket come after each other: what the earlier ones spend is asked for on
// top.
func (c *call) decideOne(i int, now int64) {
	op, task := &c.ops[i], &c.tasks[i]
	it := task.unit.item
	task.pending, task.replayed = 0, false
	if op.ID != 0 {
		if k := task.remembered(op.ID, now); k != nil {
			c.answers[i], task.replayed = replay(it, op, k, now), true
			return
		}
	}
	if op.At != 0 {
		c.answers[i] = step.Answer{Allowed: true, At: op.At}
		return
	}
	behind, twice := c.lineUp(i)
	if twice {
		return
	}
	r := op.Request
	r.Dry = true
	if r.Cost > 0 {
		r.Cost += task.pending
	}
	if r.Min > 0 {
		r.Min += task.pending
	}
	a := it.take(op.Params, now, r)
	if a.Allowed && r.Cost != 0 {
		a.Granted -= task.pending
		if op.Params.Queue && r.MaxDelay > 0 && behind > r.MaxDelay {
			a = it.take(op.Params, now, op.Look())
			a.Allowed, a.Delay, a.At, a.RetryAfter = false, 0, now, behind-r.MaxDelay
		}
	}
	c.answers[i] = a
}

// lineUp adds up what earlier takes of the call spend on the bucket of take i, and says when the last of them will have
// left a queue. If the take itself is among them, twice is true and it has their answer.
func (c *call) lineUp(i int) (behind int64, twice bool) {
	op, task := &c.ops[i], &c.tasks[i]
	for _, j := range task.unit.ops {
		if j >= i {
			break
		}
		other, a := &c.ops[j], &c.answers[j]
		if other.Params.Identity() != op.Params.Identity() || !a.Allowed || c.tasks[j].replayed {
			continue
		}
		switch cost := other.Request.Cost; {
		case op.ID != 0 && op.ID == other.ID:
			c.answers[i], task.replayed = *a, true
			return 0, true
		case other.At != 0: // a settlement counts in full, though some of it may have worn off
			task.pending += max(0, cost)
		case cost > 0:
			task.pending += a.Granted
			behind = a.ResetAfter
		}
	}
	return behind, false
}

// remembered returns the charge of an ID, or nil. What the item knows comes before what has left it.
func (t *task) remembered(id uint64, now int64) *charge {
	k := t.unit.item.charge(id, now)
	if k == nil && t.spilled != nil && t.spilled.id == id && t.spilled.until > now {
		k = t.spilled
	}
	if k == nil || k.void {
		return nil
	}
	return k
}

// replay answers a take whose ID was charged before: as it was then, with what remains now.
func replay(it *item, op *table.Op, k *charge, now int64) step.Answer {
	a := it.take(op.Params, now, op.Look())
	a.Allowed, a.Never, a.Delay, a.RetryAfter = !k.denied, false, 0, 0
	a.Blocked = a.Blocked && k.denied
	a.Granted, a.At = k.granted, k.at
	kind := op.Params.Kind
	switch {
	case k.denied: // and stays so until the ID is forgotten
		r := op.Request
		r.Dry = true
		again := it.take(op.Params, now, r)
		if a.Never = again.Never; !a.Never {
			a.RetryAfter = max(k.until-now, again.RetryAfter)
		}
	case op.At == 0 && (kind == step.Bucket || kind == step.Interval):
		a.Delay = max(0, a.At-now) // of its place
	}
	return a
}

// vetoed tells whether an op of the units in hand denies the whole call.
func (c *call) vetoed() bool {
	for i := range c.ops {
		op := &c.ops[i]
		if c.tasks[i].unit.inHand && !c.answers[i].Allowed && !op.Shadow && op.Request.Cost != 0 {
			return true
		}
	}
	return false
}

// commit does in the items in hand what was decided.
func (c *call) commit(now int64) {
	for i := range c.ops {
		task := &c.tasks[i]
		switch {
		case !task.unit.inHand || c.ops[i].Request.Dry:
		case task.replayed || c.ops[i].Peeks():
			task.unit.item.adopt(c.ops[i].Params, now, c.ops[i].Request.Known)
		default:
			c.commitOne(i, now)
		}
	}
}

func (c *call) commitOne(i int, now int64) {
	op, a := &c.ops[i], &c.answers[i]
	it := c.tasks[i].unit.item
	charged := false
	switch {
	case !a.Allowed && !op.Request.Charge:
		it.adopt(op.Params, now, op.Request.Known)
	case c.veto && !op.Request.Charge:
		it.adopt(op.Params, now, op.Request.Known)
		if op.At == 0 { // it would have passed; say what there is without it
			*a = unspent(it, op, a, now)
		}
	case op.At != 0:
		*a, charged = it.adjust(op.Params, now, op.Settlement()), true
	default:
		*a, charged = it.take(op.Params, now, op.Request), true
	}
	if c.tasks[i].denied && a.Allowed {
		// It was denied, others were charged or not for that, and only now there is room: asking again will do.
		a.Allowed, a.Granted, a.Delay, a.RetryAfter = false, 0, 0, 1
	}
	if op.ID != 0 && charged && (a.Allowed || it.blocked <= now) { // a block charges nothing
		it.remember(op.ID, a, now)
	}
}

// unspent answers a take that would have passed and was not charged, because another was denied.
func unspent(it *item, op *table.Op, allowed *step.Answer, now int64) step.Answer {
	a := it.take(op.Params, now, op.Look())
	a.Allowed, a.RetryAfter, a.At = true, 0, allowed.At
	return a
}
