package memcachestore

import (
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// task is the state of one op in a call.
type task struct {
	unit           *unit
	known          *group.Known  // limit parameters of the op's rule, recorded at its shard
	charge         string        // stored key of its ID's charge, if that is no longer in the item
	externalCharge *chargeRecord // the charge found there
	denied         bool          // finally: others have been charged accordingly
}

// decide decides the ops of the pending units without changing state.
func (c *call) decide(now int64) {
	for i := range c.ops {
		if c.tasks[i].unit.pending {
			c.decideOne(i, now)
		}
	}
}

func (c *call) decideOne(i int, now int64) {
	op, it := &c.ops[i], c.tasks[i].unit.item
	if op.ID != 0 {
		if k := c.tasks[i].remembered(op.ID, now); k != nil {
			c.group.Out[i], c.group.Tasks[i].Replayed = replay(it, op, k, now), true
			return
		}
	}
	r, ask := c.group.Ask(i, op)
	if !ask {
		return
	}
	c.group.Out[i] = it.take(op.Params, now, r)
	if c.group.Answered(i, op) {
		c.group.Out[i] = it.take(op.Params, now, op.Look())
		c.group.TooLate(i, op, now)
	}
}

// remembered returns the charge of an ID, or nil. A charge in the item is newer than one that has been moved out of it.
func (t *task) remembered(id uint64, now int64) *chargeRecord {
	k := t.unit.item.charge(id, now)
	if k == nil && t.externalCharge != nil && t.externalCharge.id == id && t.externalCharge.until > now {
		k = t.externalCharge
	}
	if k == nil || k.voided {
		return nil
	}
	return k
}

// replay returns the decision for a take whose ID was charged before.
func replay(it *item, op *group.Op, k *chargeRecord, now int64) step.Answer {
	charged := group.Charged{At: k.at, Until: k.until, Granted: k.granted, Denied: k.denied}
	found := it.take(op.Params, now, op.Look())
	var again step.Answer
	if charged.Denied {
		again = it.take(op.Params, now, op.Again())
	}
	return charged.Replay(op, found, again, now)
}

// vetoed reports whether an op of the pending units denies the whole call.
func (c *call) vetoed() bool {
	for i := range c.ops {
		if c.tasks[i].unit.pending && c.ops[i].Vetoes(&c.group.Out[i]) {
			return true
		}
	}
	return false
}

// commit applies the decisions to the items of the pending units.
func (c *call) commit(now int64) {
	for i := range c.ops {
		if c.tasks[i].unit.pending {
			c.commitOne(i, now)
		}
	}
}

func (c *call) commitOne(i int, now int64) {
	op, a, it := &c.ops[i], &c.group.Out[i], c.tasks[i].unit.item
	adopt, do := c.group.Commit(i, op, c.veto)
	if adopt {
		it.adopt(op.Params, now, op.Request.Known, op.Begins())
	}
	switch do {
	case group.Look:
		*a = unspent(it, op, a, now)
	case group.Adjust:
		*a = it.adjust(op.Params, now, op.Settlement())
	case group.Charge:
		*a = it.take(op.Params, now, op.Request)
	}
	if c.tasks[i].denied && a.Allowed && !c.group.Tasks[i].Replayed && !op.Peeks() {
		// The limit admits it only now, and the other takes were charged for a denial: the caller may retry at once.
		a.Allowed, a.Granted, a.Delay, a.RetryAfter = false, 0, 0, 1
	}
	charged := do == group.Adjust || do == group.Charge
	if op.ID != 0 && charged && (a.Allowed || it.blocked <= now) { // a blocked take is not charged
		it.remember(op.ID, a, now)
	}
}

// unspent returns the decision for an allowed take that was not charged because another take was denied.
func unspent(it *item, op *group.Op, allowed *step.Answer, now int64) step.Answer {
	return group.Unspent(it.take(op.Params, now, op.Look()), allowed.At)
}
