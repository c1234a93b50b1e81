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

// call is one Apply. It reads the items of all its takes, decides, and swaps what has changed; whoever loses a swap
// begins again. A denied call has nothing to swap, mostly.
//
// A call about one item is run together with others, see runBatch; one about several is run by itself. Only when
// some of several swaps are won and others are lost, which takes another process, can a part of a call be seen: what
// was charged stays while the rest is decided again, and is refunded if that is denied then.
type call struct {
	s            *Store
	ops          []group.Op
	group        group.Call // the decision about them
	tasks        []task
	units        []*unit
	ctx          context.Context // of a call that waits to be run together with others
	done         chan error      // gets what such a call ended with
	dropped      bool            // it was not run to its end, because the caller gave up
	veto         bool
	outcomeFixed bool // something was stored: the verdict stands, unless it was to allow and cannot be kept
}

// unit is an item that the takes of a call are about.
type unit struct {
	rule    group.RuleID
	key     string
	name    string
	digest  digest
	server  *server
	ops     []int // that are about it, in order
	pending bool  // still to be decided

	ids []*task // those of its takes that have an ID

	item   *item
	raw    []byte // the item as it is stored; nil if it is not
	cas    uint64 // its number
	next   []byte // to be stored; nil to be deleted
	stored bool
}

func (s *Store) unit(rule group.RuleID, key string) *unit {
	d := itemDigest(rule, key)
	return &unit{rule: rule, key: key, name: s.name(d), digest: d, server: s.pick(d), pending: true}
}

// chargeName is where an ID of the unit is remembered, if the item has no more room.
func (s *Store) chargeName(u *unit, id uint64) string { return s.name(chargeDigest(u.rule, u.key, id)) }

// newCall finds the items of the ops.
func (s *Store) newCall(ops []group.Op) *call {
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
		c.tasks[i].known = s.rules[slices.Index(s.servers, u.server)].Known(ops[i].Rule)
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

// run decides the call and charges what is to be charged.
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
		case !c.veto && c.vetoed(): // the room has gone to another process
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

// pendingUnits are the units that are not done with.
func (c *call) pendingUnits() []*unit {
	if !c.outcomeFixed {
		return c.units
	}
	return slices.DeleteFunc(slices.Clone(c.units), func(u *unit) bool { return !u.pending })
}

// finish makes the verdict stand: only the units whose swap was lost are still in hand.
func (c *call) finish() {
	c.outcomeFixed = true
	for _, u := range c.units {
		u.pending = u.pending && !u.stored && !bytes.Equal(u.raw, u.next)
	}
	c.pinDenials()
}

// pinDenials keeps what was denied from being allowed later on: others were not charged because of it.
func (c *call) pinDenials() {
	for i := range c.tasks {
		c.tasks[i].denied = c.veto && !c.group.Out[i].Allowed
	}
}

// read fetches items, and what is remembered of their takes' IDs. An ID is looked up after its item, on the same
// server: it is written before the item lets go of it, so that it is found in one of them.
func (s *Store) read(ctx context.Context, units []*unit) error {
	return onServers(units, func(v *server, units []*unit) error {
		var commands []command
		for _, u := range units {
			commands = append(commands, command{verb: get, key: u.name})
			for _, t := range u.ids {
				commands = append(commands, command{verb: get, key: t.charge})
			}
		}
		replies := make([]reply, len(commands))
		if err := s.exchange(ctx, v, commands, replies); err != nil {
			return err
		}
		for _, u := range units {
			if err := u.load(&replies[0]); err != nil {
				return err
			}
			for i, t := range u.ids {
				if err := t.loadCharge(&replies[1+i]); err != nil {
					return err
				}
			}
			replies = replies[1+len(u.ids):]
		}
		return nil
	})
}

// load reads the item from a reply.
func (u *unit) load(p *reply) error {
	u.raw, u.cas, u.stored = nil, 0, false
	u.item = &item{}
	if p.status == value {
		u.raw, u.cas = p.value, p.cas
		if err := u.item.decode(u.name, p.value); err != nil {
			return fmt.Errorf("%s: key %s: %w", u.server.addr, u.name, err)
		}
	}
	return nil
}

func (t *task) loadCharge(p *reply) error {
	t.externalCharge = nil
	if p.status != value {
		return nil
	}
	k, err := decodeCharge(t.charge, p.value)
	if err != nil {
		return fmt.Errorf("%s: key %s: %w", t.unit.server.addr, t.charge, err)
	}
	t.externalCharge = &k
	return nil
}

// refund undoes what was charged before another take of the call was denied.
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
		c.s.stats.refunds.Add(int64(len(undo)))
	}
	return nil
}

// refundUnit undoes ops on one item, the last first.
func (c *call) refundUnit(ctx context.Context, u *unit, undo []int) error {
	charged := slices.Clone(c.group.Out)
	return c.s.update(ctx, u, fail, func(it *item, now int64) {
		for _, i := range slices.Backward(undo) {
			op := &c.ops[i]
			if granted := charged[i].Granted; granted != 0 {
				x := step.Settlement{
					At: charged[i].At, Delta: -granted, Charged: max(0, granted), Settles: op.Request.Settles, Known: op.Request.Known,
				}
				if op.At != 0 { // what a settlement charged was charged just now
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

// onServers runs f for each server with the units it keeps, at the same time.
func onServers(units []*unit, f func(v *server, units []*unit) error) error {
	if !slices.ContainsFunc(units, func(u *unit) bool { return u.server != units[0].server }) {
		if len(units) == 0 {
			return nil
		}
		return f(units[0].server, units)
	}
	groups := map[*server][]*unit{}
	for _, u := range units {
		groups[u.server] = append(groups[u.server], u)
	}
	var all sync.WaitGroup
	faults := make(chan error, len(groups))
	for v, some := range groups {
		all.Go(func() { faults <- f(v, some) })
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

// backOff waits before an attempt that is not the first, for longer each time and never for the same time as others.
func (s *Store) backOff(ctx context.Context, attempt int) error {
	if attempt == 0 {
		return nil
	}
	wait := time.NewTimer(rand.N(min(minBackoff<<min(attempt, 10), maxBackoff)))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d times another process was first: %w", attempt, ctx.Err())
	}
}
