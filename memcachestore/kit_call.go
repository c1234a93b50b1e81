package memcachestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// call is one Apply. It reads the items of all its takes, decides, and swaps the items that have changed. If a swap is
// lost, it starts again. A denied call usually has nothing to swap.
//
// Calls on one item are batched, see runBatch; a call on several items runs alone. Other processes see part of a call
// only if some of its swaps succeed and others are lost to another process. Stored charges then remain while the other
// takes are decided again, and are refunded if one of those is denied.
type call struct {
	s            *kit
	ops          []group.Op
	group        group.Call // the decision about them
	tasks        []task
	units        []*unit
	ctx          context.Context // of a call that waits for a batch
	done         chan error      // receives the error of a batched call
	dropped      bool            // not completed, because the caller stopped waiting
	veto         bool            // one of its takes denies the call
	outcomeFixed bool            // an item was stored: a denial is final, and so is an allowance unless another process has used up the limit since
}

// unit is an item that takes of a call use.
type unit struct {
	rule    group.RuleID
	key     string
	name    string
	digest  digest
	shard   *shard
	ops     []int   // indexes of the ops on it, in order
	pending bool    // not decided yet
	ids     []*task // its ops with an idempotency ID

	item   *item
	old    stored // the item as it was read
	next   []byte // to be stored; nil to be deleted
	stored bool
}

func (s *kit) unit(rule group.RuleID, key string) *unit {
	d := itemDigest(rule, key)
	return &unit{rule: rule, key: key, name: s.name(d), digest: d, shard: &s.shards[s.place(d)], pending: true}
}

// chargeName returns the stored key of the charge of an ID that is no longer in the item.
func (s *kit) chargeName(u *unit, id uint64) string { return s.name(chargeDigest(u.rule, u.key, id)) }

// newCall returns a call with a unit for each item of the ops.
func (s *kit) newCall(ops []group.Op) *call {
	c := &call{s: s, ops: ops, tasks: make([]task, len(ops))}
	c.group = group.Call{Tasks: make([]group.Task, len(ops)), Out: make([]step.Answer, len(ops))}
	type bucketName struct {
		rule group.RuleID
		key  string
	}
	var units map[bucketName]*unit
	if len(ops) > 1 {
		units = make(map[bucketName]*unit, len(ops))
	}
	for i := range ops {
		name := bucketName{ops[i].Rule, ops[i].Key}
		u := units[name]
		if u == nil {
			u = s.unit(name.rule, name.key)
			c.units = append(c.units, u)
			if units != nil {
				units[name] = u
			}
		}
		u.ops = append(u.ops, i)
		c.tasks[i].known = u.shard.rules.Known(ops[i].Rule)
		ops[i].Request.Known = c.tasks[i].known.Now()
		c.tasks[i].unit = u
		c.group.Tasks[i].Cell = group.Cell{A: uint64(u.ops[0]), B: ops[i].Params.Identity()}
		if ops[i].ID != 0 {
			c.tasks[i].charge = s.chargeName(u, ops[i].ID)
			u.ids = append(u.ids, &c.tasks[i])
		}
	}
	return c
}

// run decides the call and charges its takes.
func (c *call) run(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		if err := c.s.backOff(ctx, attempt); err != nil {
			return err
		}
		if err := c.s.read(ctx, c.pendingUnits()); err != nil {
			return err
		}
		now := c.s.micros()
		if err := c.learn(ctx, now); err != nil {
			return err
		}
		c.decide(now)
		switch {
		case !c.outcomeFixed:
			c.veto = c.vetoed()
		case !c.veto && c.vetoed(): // another process has used up the limit
			if err := c.refund(ctx); err != nil {
				return err
			}
			c.veto = true
			c.pinDenials()
		}
		c.commit(now)
		stored, lost, err := c.s.write(ctx, c.pendingUnits(), now)
		if err != nil || lost == 0 {
			return err
		}
		if stored > 0 {
			c.finish()
		}
	}
}

// pendingUnits returns the units that are not decided yet.
func (c *call) pendingUnits() []*unit {
	if !c.outcomeFixed {
		return c.units
	}
	return slices.DeleteFunc(slices.Clone(c.units), func(u *unit) bool { return !u.pending })
}

// finish fixes the outcome: only the units whose swap was lost are decided again.
func (c *call) finish() {
	c.outcomeFixed = true
	for _, u := range c.units {
		u.pending = u.pending && !u.stored && !bytes.Equal(u.old.value, u.next)
	}
	c.pinDenials()
}

// pinDenials prevents denied takes from being allowed later, because other takes were not charged because of the
// denial.
func (c *call) pinDenials() {
	for i := range c.tasks {
		c.tasks[i].denied = c.veto && !c.group.Out[i].Allowed
	}
}

// read reads items, and the charges of IDs that have been moved out of them. A charge is read after its item, from the
// same shard. It is written before the item drops it, so that it is found in one of the two.
func (s *kit) read(ctx context.Context, units []*unit) error {
	return onShards(units, func(b *shard, units []*unit) error {
		keys := make([]string, 0, len(units))
		for _, u := range units {
			keys = append(keys, u.name)
			for _, t := range u.ids {
				keys = append(keys, t.charge)
			}
		}
		found := make([]stored, len(keys))
		if err := b.get(ctx, keys, found); err != nil {
			return err
		}
		for _, u := range units {
			if err := u.load(found[0]); err != nil {
				return err
			}
			for i, t := range u.ids {
				if err := t.loadCharge(found[1+i]); err != nil {
					return err
				}
			}
			found = found[1+len(u.ids):]
		}
		return nil
	})
}

// load decodes the item.
func (u *unit) load(found stored) error {
	u.old, u.stored = found, false
	u.item = &item{}
	if found.version == 0 {
		return nil
	}
	if err := u.item.decode(u.name, found.value); err != nil {
		return fmt.Errorf("%s: key %s: %w", u.shard, u.name, err)
	}
	return nil
}

func (t *task) loadCharge(found stored) error {
	t.externalCharge = nil
	if found.version == 0 {
		return nil
	}
	k, err := decodeCharge(t.charge, found.value)
	if err != nil {
		return fmt.Errorf("%s: key %s: %w", t.unit.shard, t.charge, err)
	}
	t.externalCharge = &k
	return nil
}

// refund refunds charges that were stored before another take of the call was denied.
func (c *call) refund(ctx context.Context) error {
	for _, u := range c.units {
		if !u.stored {
			continue
		}
		undo := slices.DeleteFunc(slices.Clone(u.ops), func(i int) bool {
			op := &c.ops[i]
			return c.group.Tasks[i].Replayed || op.Request.Charge || op.Peeks() || !c.group.Out[i].Allowed
		})
		if len(undo) == 0 {
			continue
		}
		if err := c.refundUnit(ctx, u, undo); err != nil {
			return err
		}
		c.s.refunds.Add(int64(len(undo)))
	}
	return nil
}

// refundUnit refunds ops on one item, the last one first.
func (c *call) refundUnit(ctx context.Context, u *unit, undo []int) error {
	charged := slices.Clone(c.group.Out)
	return c.s.update(ctx, u, fail, func(it *item, now int64) {
		for _, i := range slices.Backward(undo) {
			op := &c.ops[i]
			if granted := charged[i].Granted; granted != 0 {
				x := step.Settlement{
					At: charged[i].At, Delta: -granted, Charged: max(0, granted), Settles: op.Request.Settles, Known: op.Request.Known,
				}
				if op.At != 0 { // the charge of a settlement has the current time
					x.At, x.Settles = now, false
				}
				it.adjust(op.Params, now, x)
			}
			if op.ID != 0 {
				it.voidCharge(op.ID, now)
			}
		}
		for _, i := range undo {
			op := &c.ops[i]
			c.group.Out[i] = step.Answer{Allowed: true, At: op.At}
			if op.At == 0 {
				c.group.Out[i] = unspent(it, op, &charged[i], now)
			}
		}
	})
}

// onShards runs f for each shard with its units, concurrently.
func onShards(units []*unit, f func(b *shard, units []*unit) error) error {
	if !slices.ContainsFunc(units, func(u *unit) bool { return u.shard != units[0].shard }) {
		if len(units) == 0 {
			return nil
		}
		return f(units[0].shard, units)
	}
	groups := map[*shard][]*unit{}
	for _, u := range units {
		groups[u.shard] = append(groups[u.shard], u)
	}
	var all sync.WaitGroup
	faults := make(chan error, len(groups))
	for b, some := range groups {
		all.Go(func() { faults <- f(b, some) })
	}
	all.Wait()
	close(faults)
	var joined []error
	for err := range faults {
		joined = append(joined, err)
	}
	return errors.Join(joined...)
}

const (
	minBackoff = 100 * time.Microsecond
	maxBackoff = 10 * time.Millisecond
)

// backOff waits before every attempt except the first, longer each time. The duration is random, so that processes that
// lose swaps to each other do not retry at the same time.
func (s *kit) backOff(ctx context.Context, attempt int) error {
	if attempt == 0 {
		return nil
	}
	wait := time.NewTimer(rand.N(min(minBackoff<<min(attempt, 10), maxBackoff)))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d swaps lost to other processes: %w", attempt, ctx.Err())
	}
}
