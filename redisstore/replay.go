package redisstore

import (
	"fmt"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// The script decides; what it decided is worked out again here from the state it found and the time it was, so that
// what callers are told comes from the one implementation of the algorithms. It is the twin of the script's last part.

// replay fills the answers to all groups. It fails if the script decided otherwise.
func (c *call) replay(r *reply) error {
	if len(r.verdicts) != len(c.ops) {
		return fmt.Errorf("redisstore: the script answered %d takes of %d", len(r.verdicts), len(c.ops))
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
				return fmt.Errorf("redisstore: take %d: the script gave no answer for a log", i)
			}
			r.logs = r.logs[logNumbers:]
			out[i] = step.Answer{Allowed: allowed}
		} else {
			c.decide(&g, i-from, o, r.now)
			if out[i].Allowed != allowed {
				return fmt.Errorf("redisstore: take %d: the script and this process decided differently (script: %v, here: %v, "+
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

// group is the decision about the takes of one group.
func (c *call) group(from, to int, out []step.Answer) group.Call {
	g := group.Call{Tasks: c.tasks[from:to], Out: out[from:to]}
	for i := range g.Tasks {
		g.Tasks[i].Cell.A = uint64(c.ops[from+i].cell)
	}
	return g
}

// answerOfLog reads what the script answered a take of a log.
func (c *call) answerOfLog(o *op, n []int64, now int64) step.Answer {
	a := step.Answer{
		Allowed: n[0] == 1, Never: n[1] == 1, Granted: n[2], Remaining: n[3], RetryAfter: n[4], ResetAfter: n[5], At: n[6],
	}
	a.Blocked = !a.Allowed && o.At == 0 && c.cells[o.cell].blocked > now
	return a
}

// take applies a request to a cell.
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

// wide is the part of the state that does not fit a step.State, with room for what a take may add.
func (c *cell) wide(p *step.Params, now int64, settles bool) []uint64 {
	if p.Kind >= step.Log { // the script's alone
		return c.words
	}
	if need := p.Words(c.state, c.words, now, settles); len(c.words) < need {
		larger := make([]uint64, need)
		p.GrowWords(c.words, larger)
		c.words = larger
	}
	return c.words
}

// adopt rewrites the state as one of these numbers. If begin, it starts the new bucket of a key without one.
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
	if next == before && a.Granted == 0 && before.ExpiresAt <= now { // nothing was changed, and so nothing is stored
		c.words = words
		return a
	}
	c.write(p, next)
	return a
}

// known is what is remembered of the take's ID, or nil.
func (c *call) known(o *op, now int64) *idempotencyRecord {
	if o.id < 0 || c.ids[o.id].till <= now {
		return nil
	}
	return &c.ids[o.id]
}

// repeat answers a request whose ID was charged before.
func (c *call) repeat(o *op, now int64, id *idempotencyRecord) step.Answer {
	charged := group.Charged{At: id.till - group.IdempotencyTTL, Until: id.till, Granted: id.granted, Denied: id.denied}
	found := c.take(o, now, o.Look())
	var again step.Answer
	if charged.Denied {
		again = c.take(o, now, o.Again())
	}
	return charged.Replay(&o.Op, found, again, now)
}

// decide answers one take without changing anything.
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

// commit does what was decided.
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
	if o.id >= 0 && (a.Allowed || c.cells[o.cell].blocked <= now) { // a block charges nothing
		c.ids[o.id] = idempotencyRecord{till: max(a.At, now) + group.IdempotencyTTL, granted: a.Granted, denied: !a.Allowed}
	}
}

// rememberLog does for a log what of commit is not the script's: later groups of the call must know the ID.
func (c *call) rememberLog(o *op, a *step.Answer, allowed, veto bool, now int64) {
	repeated := c.known(o, now) != nil
	if o.id < 0 || repeated || o.Peeks() || !o.Request.Charge && (veto || !allowed) {
		return
	}
	c.remember(o, a, now)
}
