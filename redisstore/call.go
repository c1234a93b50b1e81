package redisstore

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// call is one run of the script: takes in groups, each of which is all or nothing.
type call struct {
	ops     []op
	tasks   []group.Task // one per op; set by place
	allFast bool         // all takes can use the script's fast path
	tag     string       // the hash tag of all keys, in a Cluster
	cells   []cell
	answers []step.Answer // one per op, valid once the call has been run
	keys    []string      // state and block key of each cell, then the keys of idempotency IDs
	ids     []idempotencyRecord
	byName  map[string]int // index in keys by stored key, of cells and IDs

	asks   bool         // the server must return its run ID
	epoch  uint64       // epoch of failoverHints when the call was made
	origin *serverEpoch // the server expected to reply, or nil
	hints  []hint
	mixed  bool    // one key has states of several shapes, so the limit parameters are sent with the first attempt
	told   []*told // limit parameters sent with the call, by rule and kind; nil: none are sent
}

// op is one take of a call.
type op struct {
	group.Op
	state, block, request string // stored keys; request only with an idempotency ID

	cell int
	id   int // index in call.ids, or -1
	ends bool
	time int64 // time of the take's group in tests, else 0
	told int   // index in call.told

	recorded *group.Known // limit parameters of the rule that the server is known to have
}

// newCall returns a call with one group. It returns an error if the ops cannot be in one group.
func newCall(names *namer, recorded *group.Registry, ops []group.Op) (*call, error) {
	c := emptyCall(&idleCalls)
	c.ops, c.answers = sized(c.ops, len(ops)), sized(c.answers, len(ops))
	for i := range ops {
		o := &c.ops[i]
		o.Op = ops[i]
		o.recorded = o.By.Known(recorded)
		of := name{o.Rule, o.Key, o.HashTag}
		if names.tagged {
			tag := of.tag()
			if c.tag != "" && c.tag != tag {
				return nil, fmt.Errorf("redisstore: take %d: %w: all takes of a call must be in one hash slot of the Cluster: "+
					"give them the same HashTag", i, sluice.ErrInvalid)
			}
			c.tag = tag
		}
		var buf [128]byte
		both := names.state(buf[:0], &of, o.Params)
		end := len(both)
		keys := string(names.block(both, &of))
		o.state, o.block = keys[:end], keys[end:]
		if o.ID != 0 {
			o.request = string(names.id(buf[:0], &of, o.ID))
		}
		o.ends = i == len(ops)-1
		c.allFast = c.allFast && isPlain(&o.Op)
	}
	return c, nil
}

// idleCalls holds finished calls of one caller for reuse, and idleRuns the larger ones of batches.
var idleCalls, idleRuns sync.Pool

// emptyCall returns a call without ops.
func emptyCall(idle *sync.Pool) *call {
	c, ok := idle.Get().(*call)
	if !ok {
		c = new(call)
	}
	c.allFast = true
	return c
}

// recycle makes the call's memory available to another call. The call must have succeeded: a failed call may still be
// in flight and in use.
func (c *call) recycle(idle *sync.Pool) {
	if len(c.ops) > maxBatchTakes {
		return
	}
	clear(c.byName)
	*c = call{
		ops: emptied(c.ops), answers: c.answers[:0], tasks: c.tasks[:0], cells: emptied(c.cells), keys: emptied(c.keys),
		ids: c.ids[:0], byName: c.byName, hints: emptied(c.hints),
	}
	idle.Put(c)
}

// emptied clears a slice and returns it with length 0 and the same capacity.
func emptied[E any](s []E) []E {
	clear(s)
	return s[:0]
}

// sized returns a slice of n zero elements. It reuses the capacity of the empty slice if that suffices.
func sized[E any](empty []E, n int) []E {
	s := slices.Grow(empty, n)[:n]
	clear(s)
	return s
}

// join appends the groups of another call, which has not been run.
func (c *call) join(other *call) {
	c.ops = append(c.ops, other.ops...)
	c.answers = append(c.answers, other.answers...)
	c.allFast = c.allFast && other.allFast
}

// isPlain reports whether the script's fast path can decide the op.
func isPlain(o *group.Op) bool {
	r, p := &o.Request, o.Params
	if r.Cost <= 0 || r.Cost > p.Limit() || r.Min != 0 || r.MaxDelay != 0 || r.Settles || o.At != 0 || o.ID != 0 {
		return false
	}
	switch p.Kind {
	case step.Bucket:
		return !p.Queue && !r.Charge && !p.HasInitial
	case step.Window:
		return p.SoftExcess == 0 && p.Align == step.Epoch
	}
	return false
}

// place assigns a cell and an ID to each take.
func (c *call) place() {
	n := len(c.ops)
	c.keys, c.cells, c.tasks = slices.Grow(c.keys, 2*n), slices.Grow(c.cells, n), sized(c.tasks, n)
	for i := range c.ops {
		o := &c.ops[i]
		at, known := c.find(o.state, 2*len(c.cells), 2)
		if !known {
			c.cells = append(c.cells, cell{kind: o.Params.Kind, shape: o.Params.Shape(), rule: o.Rule.A})
			c.keys = append(c.keys, o.state, o.block)
			c.note(o.state, at)
		}
		o.cell, o.id = at/2, -1
		c.mixed = c.mixed || c.cells[o.cell].shape != o.Params.Shape()
	}
	if c.allFast {
		c.allFast = c.hasDistinctCells()
		return // fast takes have no IDs
	}
	cells := len(c.keys)
	for i := range c.ops {
		o := &c.ops[i]
		if o.ID == 0 {
			continue
		}
		at, known := c.find(o.request, len(c.keys), 1)
		if !known {
			c.ids = append(c.ids, idempotencyRecord{})
			c.keys = append(c.keys, o.request)
			c.note(o.request, at)
		}
		o.id = at - cells
	}
}

// hasDistinctCells reports whether all takes of each group are on different cells, as the script's fast path requires.
func (c *call) hasDistinctCells() bool {
	from := 0
	for i := range c.ops {
		for j := from; j < i; j++ {
			if c.ops[j].cell == c.ops[i].cell {
				return false
			}
		}
		if c.ops[i].ends {
			from = i + 1
		}
	}
	return true
}

// fewKeys is the number of keys up to which a linear search is faster than a map.
const fewKeys = 16

// find returns the index of a stored key in keys, or next and false. every is 2 for cells, which have two keys each,
// and 1 for IDs.
func (c *call) find(stored string, next, every int) (int, bool) {
	if len(c.byName) > 0 {
		at, ok := c.byName[stored]
		if !ok {
			at = next
		}
		return at, ok
	}
	from := 0
	if every == 1 {
		from = 2 * len(c.cells)
	}
	for i := from; i < len(c.keys); i += every {
		if c.keys[i] == stored {
			return i, true
		}
	}
	return next, false
}

// note records the index of a new key.
func (c *call) note(stored string, at int) {
	if len(c.byName) == 0 && len(c.keys) > fewKeys {
		if c.byName == nil {
			c.byName = make(map[string]int, 2*len(c.ops))
		}
		for i, k := range c.keys {
			c.byName[k] = i
		}
	}
	if len(c.byName) > 0 {
		c.byName[stored] = at
	}
}

// Flags of a packed take.
const (
	flagShadow = 1 << iota
	flagCharge
	flagQueue
	flagFirstHit
	flagCalendar
	flagEnds
	flagDry
	flagSettles
)

// exact is the largest number passed to the script where larger numbers have the same effect.
const exact = 1 << 52

// Flags of a packed call.
const (
	packedPlain   = 1 << iota // its takes are packed for the fast path
	packedHints               // hints follow the takes
	packedNumbers             // limit parameters are between the takes and the hints
)

// packed returns the call as the argument of the script.
func (c *call) packed(now, nonce, margin, around int64) string {
	buffer, ok := packing.Get().(*[]byte)
	if !ok {
		buffer = new([]byte)
	}
	defer packing.Put(buffer)
	*buffer = c.pack((*buffer)[:0], now, nonce, margin, around)
	return string(*buffer)
}

var packing sync.Pool // of *[]byte that calls are packed in

// pack appends the call for the script: the header, a record for each take, limit parameters, and hints. Hints are also
// present, as an empty list, if the server must return its run ID. around is a time close to the script's; it selects
// the calendar windows.
func (c *call) pack(dst []byte, now, nonce, margin, around int64) []byte {
	dst = number(dst, now, nonce, margin)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(c.ops)))
	how := byte(0)
	if c.allFast {
		how |= packedPlain
	}
	if c.asks {
		how |= packedHints
	}
	if c.told != nil {
		how |= packedNumbers
	}
	dst = append(dst, how)
	for i := range c.ops {
		o := &c.ops[i]
		if c.allFast {
			dst = o.packPlain(dst)
			continue
		}
		id := 0
		if o.id >= 0 {
			id = 2*len(c.cells) + o.id + 1
		}
		dst = o.pack(dst, id, around)
	}
	if c.told != nil {
		dst = c.packNumbers(dst)
	}
	if c.asks {
		dst = c.packHints(dst)
	}
	return dst
}

// number appends numbers in Lua's representation, as 64-bit floats.
func number(dst []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(float64(n)))
	}
	return dst
}

func (o *op) packPlain(dst []byte) []byte {
	p, cost := o.Params, o.Request.Cost
	dst = binary.LittleEndian.AppendUint16(dst, uint16(o.cell+1))
	dst = append(dst, byte(p.Kind), o.flags())
	if p.Kind == step.Window {
		dst = append(dst, '0', '0')
		return number(dst, cost, p.Count, p.Length, int64(p.Shape()), 0, 0)
	}
	dst = append(dst, '0'+p.Shape()/10, '0'+p.Shape()%10)
	d := p.Drips()
	q, r := p.DripTime(cost)
	return number(dst, cost, q, int64(r), int64(d.Den), d.FillQ, int64(d.FillR))
}

// params is the maximum number of limit parameters of a packed take.
const params = 13

func (o *op) pack(dst []byte, id int, around int64) []byte {
	p, r := o.Params, &o.Request
	dst = binary.LittleEndian.AppendUint16(dst, uint16(o.cell+1))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(id))
	dst = append(dst, byte(p.Kind), o.flags())
	dst = number(dst, r.Cost, r.Min, r.MaxDelay, max(-step.MaxTime, min(o.At, step.MaxTime)))
	begin := len(dst)
	switch p.Kind {
	case step.Bucket:
		d := p.Drips()
		dst = number(dst, int64(d.Den), d.UnitQ, int64(d.UnitR), d.FillQ, int64(d.FillR), min(p.Burst, exact))
		dst = o.packChange(dst)
		if p.HasInitial {
			dst = number(dst, d.NewQ+1, int64(d.NewR)) // +1 because 0 means no initial level
		}
	case step.Interval:
		dst = number(dst, p.Count, p.Length)
		dst = refills(dst, p, p.Burst)
		dst = o.packChange(dst)
	case step.Window:
		dst = number(dst, p.Count, p.Length, p.SoftExcess, p.SoftPeriod, p.Grain())
		if p.Align == step.Calendar {
			if o.time > 0 {
				around = o.time
			}
			first, boundary := p.Bounds(around)
			_, final := p.Bounds(boundary)
			atFirst, atFinal := p.Bounds(o.At)
			dst = number(dst, first, boundary, final, atFirst, atFinal)
		}
	case step.Counter:
		dst = number(dst, p.Count, p.Length, p.Rounding())
	case step.Slices:
		dst = number(dst, p.Count, p.SliceLength(), p.Slices+1, p.Rounding())
	case step.Log, step.Permits:
		dst = number(dst, p.Count, p.Length)
	}
	dst = append(dst, make([]byte, begin+8*params-len(dst))...)
	return append(number(dst, o.time), p.Shape())
}

// packChange appends the amount by which a bucket changes, in units of the bucket, because the products would not fit
// Lua's numbers. This is the absolute cost, or the share of the bucket that a settlement refunds. For a take with a
// Receipt it also appends the part of a mark that is settled, the cost that the take was charged, and the maximum
// backlog afterwards.
func (o *op) packChange(dst []byte) []byte {
	p, x := o.Params, o.Settlement()
	cost, share := max(x.Delta, -x.Delta), p.Share(x)
	charged, byShare := cmp.Or(x.Charged, cost), x.Settles && x.Delta < 0 && !p.Queue
	bound, boundR := p.Cap()
	if p.Kind == step.Interval {
		if byShare {
			cost = share.Want
		}
		return refills(number(dst, cost, share.Out, charged), p, bound)
	}
	q, r := p.DripTime(cost)
	if byShare {
		q, r = share.Want, share.WantR
	}
	if x.Delta < 0 {
		bound, boundR = p.DripTime(charged)
	}
	return number(dst, q, int64(r), share.Out, bound, int64(boundR))
}

// refills appends an amount of an interval bucket in the script's form: a number of refills, and how much they exceed
// the amount.
func refills(dst []byte, p *step.Params, n int64) []byte {
	whole := (n + p.Count - 1) / p.Count
	return number(dst, whole, whole*p.Count-n)
}

func (o *op) flags() byte {
	return flag(o.Shadow, flagShadow) | flag(o.Request.Charge, flagCharge) | flag(o.Params.Queue, flagQueue) |
		flag(o.Params.Align == step.FirstHit, flagFirstHit) | flag(o.Params.Align == step.Calendar, flagCalendar) |
		flag(o.ends, flagEnds) | flag(o.Request.DryRun, flagDry) | flag(o.Request.Settles, flagSettles)
}

func flag(set bool, f byte) byte {
	if set {
		return f
	}
	return 0
}
