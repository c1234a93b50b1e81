package redisstore

import (
	"fmt"

	"github.com/sluiceproject/sluice/internal/step"
)

// The script decides; what it decided is worked out again here from the state it found and the time it was, so that
// what callers are told comes from the one implementation of the algorithms. It is the twin of the script's last part,
// and both are of internal/table, which explains why.

// replay fills the answers to all groups. It fails if the script decided otherwise.
func (c *call) replay(r *reply, out []step.Answer) error {
	if len(r.verdicts) != len(c.ops) {
		return fmt.Errorf("redisstore: the script answered %d takes of %d", len(r.verdicts), len(c.ops))
	}
	from := 0
	for i := range c.ops {
		if !c.ops[i].ends {
			continue
		}
		if err := c.replayGroup(r, from, i+1, out); err != nil {
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
	for i := from; i < to; i++ {
		o, allowed := &c.ops[i], r.verdicts[i] == '1'
		if o.Params.Kind >= step.Log {
			if len(r.logs) < logNumbers {
				return fmt.Errorf("redisstore: take %d: the script gave no answer for a log", i)
			}
			n := r.logs
			out[i] = step.Answer{
				Allowed: n[0] == 1, Never: n[1] == 1, Granted: n[2], Remaining: n[3], RetryAfter: n[4], ResetAfter: n[5], At: n[6],
			}
			out[i].Blocked = !out[i].Allowed && o.At == 0 && c.cells[o.cell].blocked > r.now
			r.logs = n[logNumbers:]
		} else {
			c.decide(from, i, r.now, out)
			if out[i].Allowed != allowed {
				return fmt.Errorf("redisstore: take %d: the script and this process decided differently (script: %v, here: %v, "+
					"at %d, on %+v): this is a bug, please report it", i, allowed, out[i].Allowed, r.now, c.cells[o.cell])
			}
		}
		veto = veto || !allowed && !o.Shadow && o.Request.Cost != 0
	}
	for i := from; i < to; i++ {
		if c.ops[i].Params.Kind >= step.Log {
			c.rememberLog(&c.ops[i], &out[i], r.verdicts[i] == '1', veto, r.now)
		} else {
			c.commit(&c.ops[i], &out[i], veto, r.now)
		}
	}
	return nil
}

// take applies a request to a cell.
func (c *call) take(o *op, now int64, r step.Request) step.Answer {
	at := &c.cells[o.cell]
	r.Known = o.Request.Known
	if at.blocked <= now {
		return at.take(o.Params, now, r)
	}
	if !r.Dry {
		at.adopt(o.Params, now, r.Known)
	}
	r.Dry = true
	free := at.take(o.Params, now, r)
	idle := at.take(o.Params, now, step.Request{Dry: true, Known: r.Known})
	a := step.Answer{Never: free.Never, Blocked: true, ResetAfter: max(at.blocked-now, idle.ResetAfter), At: now}
	if !a.Never {
		a.RetryAfter = max(at.blocked-now, free.RetryAfter)
	}
	return a
}

func (c *cell) take(p *step.Params, now int64, r step.Request) step.Answer {
	next, a := p.Take(c.state, c.wide(p, now, r.Settles && !r.Dry), now, r)
	if !r.Dry && r.Cost != 0 {
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

// adopt rewrites the state as one of these numbers.
func (c *cell) adopt(p *step.Params, now int64, known *step.Known) {
	if c.state.FreshAt > now && c.state.Shape != p.Shape() {
		c.write(p, p.Adopt(c.state, c.wide(p, now, false), now, known))
	}
}

func (c *cell) adjust(p *step.Params, now int64, x step.Settlement) step.Answer {
	before, words := c.state, append([]uint64(nil), c.wide(p, now, false)...)
	next, a := p.Adjust(before, c.words, now, x)
	if next == before && a.Granted == 0 && before.FreshAt <= now { // nothing was changed, and so nothing is stored
		c.words = words
		return a
	}
	c.write(p, next)
	return a
}

// dedupe is for how long a charged request's ID is remembered.
const dedupe = 60 * 1_000_000

// known is what is remembered of the take's ID, or nil.
func (c *call) known(o *op, now int64) *remembered {
	if o.id < 0 || c.ids[o.id].till <= now {
		return nil
	}
	return &c.ids[o.id]
}

// repeat answers a request whose ID was charged before: as it was then, with what remains now.
func (c *call) repeat(o *op, now int64, id *remembered) step.Answer {
	a := c.take(o, now, step.Request{Dry: true})
	a.Allowed, a.Never, a.Delay, a.RetryAfter = !id.denied, false, 0, 0
	a.Blocked = a.Blocked && id.denied
	a.Granted, a.At = id.granted, id.till-dedupe
	switch kind := o.Params.Kind; {
	case !a.Allowed: // and stays so until the ID is forgotten
		r := o.Request
		r.Dry = true
		again := c.take(o, now, r)
		if a.Never = again.Never; !a.Never {
			a.RetryAfter = max(id.till-now, again.RetryAfter)
		}
	case o.At == 0 && (kind == step.Bucket || kind == step.Interval):
		a.Delay = max(0, a.At-now) // of its place
	}
	return a
}

// decide answers one take of the group that begins at from without changing anything.
func (c *call) decide(from, i int, now int64, out []step.Answer) {
	o := &c.ops[i]
	if id := c.known(o, now); id != nil {
		out[i], o.replayed = c.repeat(o, now, id), true
		return
	}
	if o.At != 0 {
		out[i] = step.Answer{Allowed: true, At: o.At}
		return
	}
	var behind int64 // when the last of the earlier ones will have left a queue
	for j := from; j < i; j++ {
		other := &c.ops[j]
		if other.cell != o.cell || !out[j].Allowed || other.replayed {
			continue
		}
		switch cost := other.Request.Cost; {
		case o.id >= 0 && o.id == other.id: // it came twice in one call
			out[i], o.replayed = out[j], true
			return
		case other.At != 0: // a settlement counts in full, though some of it may have worn off
			o.pending += max(0, cost)
		case cost > 0:
			o.pending += out[j].Granted
			behind = out[j].ResetAfter
		}
	}
	r := o.Request
	r.Dry = true
	if r.Cost > 0 {
		r.Cost += o.pending
	}
	if r.Min > 0 {
		r.Min += o.pending
	}
	out[i] = c.take(o, now, r)
	if !out[i].Allowed || r.Cost == 0 {
		return
	}
	out[i].Granted -= o.pending
	if o.Params.Queue && r.MaxDelay > 0 && behind > r.MaxDelay {
		out[i] = c.take(o, now, step.Request{Dry: true})
		out[i].Allowed, out[i].Delay, out[i].At, out[i].RetryAfter = false, 0, now, behind-r.MaxDelay
	}
}

// commit does what was decided.
func (c *call) commit(o *op, a *step.Answer, veto bool, now int64) {
	if !o.Request.Dry && (o.replayed || o.Peeks() || !o.Request.Charge && (veto || !a.Allowed)) {
		c.cells[o.cell].adopt(o.Params, now, o.Request.Known)
	}
	switch {
	case o.replayed || o.Peeks() || !a.Allowed && !o.Request.Charge:
		return
	case veto && !o.Request.Charge:
		if o.At == 0 { // it would have passed; say what there is without it
			allowed := *a
			*a = c.take(o, now, step.Request{Dry: true})
			a.Allowed, a.RetryAfter, a.At = true, 0, allowed.At
		}
		return
	case o.At != 0:
		*a = c.cells[o.cell].adjust(o.Params, now, o.Settlement())
	default:
		*a = c.take(o, now, o.Request)
	}
	c.remember(o, a, now)
}

func (c *call) remember(o *op, a *step.Answer, now int64) {
	if o.id >= 0 && (a.Allowed || c.cells[o.cell].blocked <= now) { // a block charges nothing
		c.ids[o.id] = remembered{till: max(a.At, now) + dedupe, granted: a.Granted, denied: !a.Allowed}
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
