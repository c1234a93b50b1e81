package redisstore

import (
	"fmt"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// The script decides. Its decisions are computed again here, from the state that it found and the time that it used, so
// that callers get decisions of the one implementation of the algorithms. This is the counterpart of the last part of
// the script.

// replay fills in the answers of all groups. It returns an error if the script decided differently.
func (c *call) replay(r *reply) error {
	if len(r.verdicts) != len(c.ops) {
		return fmt.Errorf("redisstore: the script returned %d decisions for %d takes", len(r.verdicts), len(c.ops))
	}
	from := 0
	for i := range c.ops {
		if !c.ops[i].ends {
			continue
		}
		if err := c.replayGroup(r, from, i+1, c.answers); err != nil {
			return err
		}
		from = i + 1
	}
	return nil
}

func (c *call) replayGroup(r *reply, from, to int, out []step.Answer) error {
	veto := false
	if at := c.ops[to-1].time; at > 0 {
		r.now = at
	}
	g, logs := c.group(from, to, out), r.logs
	for i := from; i < to; i++ {
		o, allowed := &c.ops[i], r.verdicts[i] == '1'
		if o.Params.Kind >= step.Log {
			if len(r.logs) < logNumbers {
				return fmt.Errorf("redisstore: take %d: the script returned no result for a log", i)
			}
			r.logs = r.logs[logNumbers:]
			out[i] = step.Answer{Allowed: allowed}
		} else {
			c.decide(&g, i-from, o, r.now)
			if out[i].Allowed != allowed {
				return fmt.Errorf("redisstore: take %d: the script and this process decided differently (script: allowed=%v, here: allowed=%v, "+
					"at %d, on %+v): this is a bug, please report it", i, allowed, out[i].Allowed, r.now, c.cells[o.cell])
			}
		}
		veto = veto || o.Vetoes(&out[i])
	}
	for i := from; i < to; i++ {
		if o := &c.ops[i]; o.Params.Kind >= step.Log {
			out[i] = c.answerOfLog(o, logs, r.now)
			logs = logs[logNumbers:]
			c.rememberLog(o, &out[i], r.verdicts[i] == '1', veto, r.now)
		} else {
			c.commit(&g, i-from, o, veto, r.now)
		}
	}
	return nil
}

// group returns the decision about the takes of one group.
func (c *call) group(from, to int, out []step.Answer) group.Call {
	g := group.Call{Tasks: c.tasks[from:to], Out: out[from:to]}
	for i := range g.Tasks {
		g.Tasks[i].Cell.A = uint64(c.ops[from+i].cell)
	}
	return g
}

// answerOfLog parses the script's result for a take of a log.
func (c *call) answerOfLog(o *op, n []int64, now int64) step.Answer {
	a := step.Answer{
		Allowed: n[0] == 1, Never: n[1] == 1, Granted: n[2], Remaining: n[3], RetryAfter: n[4], ResetAfter: n[5], At: n[6],
	}
	a.Blocked = !a.Allowed && o.At == 0 && c.cells[o.cell].blocked > now
	return a
}

// take applies a request to the take's cell.
func (c *call) take(o *op, now int64, r step.Request) step.Answer {
	at := &c.cells[o.cell]
	r.Known = o.Request.Known
	if at.blocked <= now {
		return at.take(o.Params, now, r)
	}
	if !r.DryRun {
		at.adopt(o.Params, now, r.Known, o.Begins())
	}
	r.DryRun = true
	free := at.take(o.Params, now, r)
	idle := at.take(o.Params, now, step.Request{DryRun: true, Known: r.Known})
	return group.Blocked(&free, &idle, now, at.blocked)
}

func (c *cell) take(p *step.Params, now int64, r step.Request) step.Answer {
	next, a := p.Take(c.state, c.wide(p, now, r.Settles && !r.DryRun), now, r)
	if !r.DryRun && r.Cost != 0 {
		c.write(p, next)
	}
	return a
}

// wide returns the part of the state that does not fit a step.State, with room for the words that a take may add.
func (c *cell) wide(p *step.Params, now int64, settles bool) []uint64 {
	if p.Kind >= step.Log { // decided by the script alone
		return c.words
	}
	if need := p.Words(c.state, c.words, now, settles); len(c.words) < need {
		larger := make([]uint64, need)
		p.GrowWords(c.words, larger)
		c.words = larger
	}
	return c.words
}

// adopt converts the state to the parameters p. If begin is set, it starts a new bucket for a key without one.
func (c *cell) adopt(p *step.Params, now int64, known *step.Known, begin bool) {
	switch {
	case c.state.ExpiresAt > now && c.state.Shape != p.Shape():
		c.write(p, p.Adopt(c.state, c.wide(p, now, false), now, known))
	case c.state.ExpiresAt <= now && begin:
		next, _ := p.Take(c.state, nil, now, step.Request{Begin: true})
		c.write(p, next)
		c.words = nil
	}
}

func (c *cell) adjust(p *step.Params, now int64, x step.Settlement) step.Answer {
	before, words := c.state, append([]uint64(nil), c.wide(p, now, false)...)
	next, a := p.Adjust(before, c.words, now, x)
	if next == before && a.Granted == 0 && before.ExpiresAt <= now { // unchanged, so nothing is stored
		c.words = words
		return a
	}
	c.write(p, next)
	return a
}

// known returns the record of the take's idempotency ID, or nil.
func (c *call) known(o *op, now int64) *idempotencyRecord {
	if o.id < 0 || c.ids[o.id].till <= now {
		return nil
	}
	return &c.ids[o.id]
}

// repeat returns the decision for a take whose idempotency ID was charged before.
func (c *call) repeat(o *op, now int64, id *idempotencyRecord) step.Answer {
	charged := group.Charged{At: id.till - group.IdempotencyTTL, Until: id.till, Granted: id.granted, Denied: id.denied}
	found := c.take(o, now, o.Look())
	var again step.Answer
	if charged.Denied {
		again = c.take(o, now, o.Again())
	}
	return charged.Replay(&o.Op, found, again, now)
}

// decide decides one take without changing its state.
func (c *call) decide(g *group.Call, i int, o *op, now int64) {
	if id := c.known(o, now); id != nil {
		g.Out[i], g.Tasks[i].Replayed = c.repeat(o, now, id), true
		return
	}
	r, ask := g.Ask(i, &o.Op)
	if !ask {
		return
	}
	g.Out[i] = c.take(o, now, r)
	if g.Answered(i, &o.Op) {
		g.Out[i] = c.take(o, now, o.Look())
		g.TooLate(i, &o.Op, now)
	}
}

// commit applies the decision about one take to its state.
func (c *call) commit(g *group.Call, i int, o *op, veto bool, now int64) {
	a := &g.Out[i]
	adopt, do := g.Commit(i, &o.Op, veto)
	if adopt {
		c.cells[o.cell].adopt(o.Params, now, o.Request.Known, o.Begins())
	}
	switch do {
	case group.Nothing:
		return
	case group.Look:
		*a = group.Unspent(c.take(o, now, o.Look()), a.At)
		return
	case group.Adjust:
		*a = c.cells[o.cell].adjust(o.Params, now, o.Settlement())
	case group.Charge:
		*a = c.take(o, now, o.Request)
	}
	c.remember(o, a, now)
}

func (c *call) remember(o *op, a *step.Answer, now int64) {
	if o.id >= 0 && (a.Allowed || c.cells[o.cell].blocked <= now) { // a blocked take is not charged
		c.ids[o.id] = idempotencyRecord{till: max(a.At, now) + group.IdempotencyTTL, granted: a.Granted, denied: !a.Allowed}
	}
}

// rememberLog records the idempotency ID of a take of a log, for later groups of the call. The rest of commit is done
// by the script.
func (c *call) rememberLog(o *op, a *step.Answer, allowed, veto bool, now int64) {
	repeated := c.known(o, now) != nil
	if o.id < 0 || repeated || o.Peeks() || !o.Request.Charge && (veto || !allowed) {
		return
	}
	c.remember(o, a, now)
}
