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

// call is what one run of the script does: takes in groups, each all or nothing.
type call struct {
	ops     []op
	tasks   []group.Task // of the ops, once they are placed
	allFast bool         // nothing but plain takes
	tag     string       // of the Cluster's slot
	cells   []cell
	answers []step.Answer // to the ops, once the call has been run
	keys    []string      // state and block of each cell, then the IDs
	ids     []idempotencyRecord
	byName  map[string]int // cells and IDs by the key they are stored under

	asks   bool         // the server is to say which it is
	epoch  uint64       // of hinter, when the call was made
	origin *serverEpoch // who is known to answer it, or nil
	hints  []hint
	mixed  bool    // states of several shapes of one key are to do with it, and the script has to be told at once
	told   []*told // what other numbers mean, by rule and kind; nil: it is not sent along
}

// op is one take of a call.
type op struct {
	group.Op
	state, block, request string // the keys it is about; the last only with an ID

	cell int
	id   int // of call.ids, or -1
	ends bool
	time int64 // 0 but in tests: when the take's group happens
	told int   // which of call.told is for it

	recorded *group.Known // what the server is known to know of the rule's numbers
}

// newCall returns a call with one group. An error means that the ops cannot be in one.
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
				return nil, fmt.Errorf("redisstore: take %d: %w: in a Cluster all takes of a call must be of one slot: "+
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

// Calls that were answered: of one caller, and those of several together, which are larger.
var idleCalls, idleRuns sync.Pool

// emptyCall is a call to which ops can be added.
func emptyCall(idle *sync.Pool) *call {
	c, ok := idle.Get().(*call)
	if !ok {
		c = new(call)
	}
	c.allFast = true
	return c
}

// recycle keeps the call's memory for another. The call was answered, and so nothing uses it any more: one that failed may
// still be under way.
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

// emptied is the memory of a slice, without what it holds.
func emptied[E any](s []E) []E {
	clear(s)
	return s[:0]
}

// sized is a slice of n zero elements, in the memory of one that is empty if there is room.
func sized[E any](empty []E, n int) []E {
	s := slices.Grow(empty, n)[:n]
	clear(s)
	return s
}

// join adds the groups of another call that was not run yet.
func (c *call) join(other *call) {
	c.ops = append(c.ops, other.ops...)
	c.answers = append(c.answers, other.answers...)
	c.allFast = c.allFast && other.allFast
}

// isPlain tells that the script's short way may know the answer.
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

// place finds each take's cell and ID.
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
		c.allFast = c.hasDuplicateCells()
		return // plain takes have no IDs
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

// hasDuplicateCells tells that two takes of one group are on the same cell, which the script's short way is not for.
func (c *call) hasDuplicateCells() bool {
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

// fewKeys is up to how many keys looking at each is quicker than a map.
const fewKeys = 16

// find returns the place of a key among the keys, or where it would come. Cells stand at every second place.
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

// note remembers where a new key stands.
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

// Flags of a take's record.
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

// exact is the largest number handed to the script where larger ones mean the same.
const exact = 1 << 52

// How a call is packed.
const (
	packedPlain   = 1 << iota // its records are those of plain takes
	packedHints               // hints follow them
	packedNumbers             // and before those, what other numbers mean
)

// packed is the call for the script.
func (c *call) packed(now, nonce, margin, around int64) string {
	buffer, ok := packing.Get().(*[]byte)
	if !ok {
		buffer = new([]byte)
	}
	defer packing.Put(buffer)
	*buffer = c.pack((*buffer)[:0], now, nonce, margin, around)
	return string(*buffer)
}

var packing sync.Pool // of buffers that calls are packed in

// pack writes the call for the script: the header, a record for each take, then hints if there are any or if the server
// is to say which it is. around is a time near the script's, for calendars.
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

// number writes numbers as Lua keeps them.
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

// params is how many numbers of a limit a record has room for.
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
			dst = number(dst, d.NewQ+1, int64(d.NewR)) // 0: none
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

// packChange writes by how much a bucket changes, in its own terms, because the products would not fit Lua's numbers: the
// cost without its sign, or the share of the bucket that a settlement gives back; and for what has a Receipt, what of a mark is
// settled, what the take was charged, and the most backlog that may be left.
func (o *op) packChange(dst []byte) []byte {
	p, x := o.Params, o.Settlement()
	cost, share := max(x.Delta, -x.Delta), p.Share(x)
	charged, byShare := cmp.Or(x.Charged, cost), x.Settles && x.Delta < 0 && !p.Queue
	most, mostR := p.Cap()
	if p.Kind == step.Interval {
		if byShare {
			cost = share.Want
		}
		return refills(number(dst, cost, share.Out, charged), p, most)
	}
	q, r := p.DripTime(cost)
	if byShare {
		q, r = share.Want, share.WantR
	}
	if x.Delta < 0 {
		most, mostR = p.DripTime(charged)
	}
	return number(dst, q, int64(r), share.Out, most, int64(mostR))
}

// refills writes an amount of an interval bucket as the script has it: so many refills less a rest.
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
