package redisstore

import (
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// A state carries the shape, a short digest, of the limit parameters under which it was written. If the shape is not
// that of the current limit, the script changes nothing and reports it, and the call is sent again with the parameters
// of all shapes of the rule. The script then converts the state that it finds and decides in the same step, so that
// concurrent changes are not lost.
//
// Each instance has the parameters of the limits that it has used itself. Those of other instances, or of earlier
// limits, are in one small key per rule: a sorted set of parameters, scored by when an instance first recorded them. An
// instance reads the set before it first uses a limit, and adds its own parameters if they are missing. It does so
// again when another server replies, which may have lost the set.

const (
	// maxRecorded is the maximum number of parameters recorded per rule: the most recent ones.
	maxRecorded = 32
	// recordLasts is the TTL of a record after an instance has started to use a limit. No window is longer.
	recordLasts = 400 * 24 * time.Hour
	// recordPause is how long a record is not read again after it could not be read or did not contain a shape.
	recordPause = time.Second
	// maxFailedReads bounds the number of rules for which failed reads are remembered.
	maxFailedReads = 10_000
)

// records tracks reads of the rules' records.
type records struct {
	mu     sync.Mutex                     // guards the fields below
	asking map[group.RuleID]chan struct{} // closed when the read is done
	vain   map[group.RuleID]time.Time     // time of the last failed read
}

// recordKey returns the key of a rule's record.
func (s *Store) recordKey(rule group.RuleID) string {
	return string(appendRule(append([]byte(s.names.prefix), version, letterNumbers), rule))
}

// explain looks up the limit parameters of shapes that the script has found.
func (s *Store) explain(ctx context.Context, c *call, changed []int64) {
	for i := 0; i+1 < len(changed); i += 2 {
		cell, shape := int(changed[i])-1, uint8(changed[i+1])
		for j := range c.ops {
			o := &c.ops[j]
			if o.cell != cell {
				continue
			}
			isKnown := func() bool { return s.registry.Known(o.Rule).Now().Finds(o.Params, shape) }
			if !isKnown() {
				s.consult(ctx, o.Rule, isKnown, func() error { return s.record(ctx, o) })
			}
			break
		}
	}
}

// consult reads a rule's record, one caller at a time, unless reading it failed less than recordPause ago.
func (s *Store) consult(ctx context.Context, rule group.RuleID, enough func() bool, ask func() error) {
	r := &s.records
	r.mu.Lock()
	for r.asking[rule] != nil {
		other := r.asking[rule]
		r.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return
		}
		r.mu.Lock()
	}
	if enough() || time.Since(r.vain[rule]) < recordPause {
		r.mu.Unlock()
		return
	}
	if r.asking == nil {
		r.asking, r.vain = make(map[group.RuleID]chan struct{}), make(map[group.RuleID]time.Time)
	}
	done := make(chan struct{})
	r.asking[rule] = done
	r.mu.Unlock()
	err := ask()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asking, rule)
	delete(r.vain, rule)
	if err != nil || !enough() {
		if len(r.vain) >= maxFailedReads {
			clear(r.vain)
		}
		r.vain[rule] = time.Now()
	}
	close(done)
}

// record reads the record of a take's rule, and adds the parameters that this instance has and the record lacks, above
// all the take's own.
func (s *Store) record(ctx context.Context, o *op) error {
	key, known, own := s.recordKey(o.Rule), s.registry.Known(o.Rule), o.Params.Numbers()
	reply, err := s.ask(ctx, "ZRANGE", key, "0", "-1")
	if err != nil {
		return err
	}
	all, err := reply.ToArray()
	if err != nil {
		return err
	}
	var numbers []step.Numbers
	for i := range all {
		if text, err := all[i].ToString(); err == nil {
			numbers = append(numbers, parseNumbers(text))
		}
	}
	known.Learn(append(numbers, own)...)
	add, now := []string{"ZADD", key}, strconv.FormatInt(time.Now().UnixMilli(), 10)
	for _, n := range append(known.Now().All(), own) {
		if !slices.Contains(numbers, n) {
			add = append(add, now, formatNumbers(n))
		}
	}
	if len(add) > 2 {
		if err := s.do(ctx, add...); err != nil {
			return err
		}
		if err := s.do(ctx, "ZREMRANGEBYRANK", key, "0", strconv.Itoa(-maxRecorded-1)); err != nil {
			return err
		}
	}
	if err := s.do(ctx, "PEXPIRE", key, strconv.FormatInt(recordLasts.Milliseconds(), 10)); err != nil {
		return err
	}
	o.recorded.Learn(append(numbers, own)...)
	return nil
}

func formatNumbers(n step.Numbers) string {
	return string(appendFields(nil, int64(n.Kind), n.Slices, n.Count, n.Length, n.Burst))
}

// parseNumbers parses the output of formatNumbers. For any other text it returns the zero value, which is invalid.
func parseNumbers(text string) (n step.Numbers) {
	err := parseFields(text, 5, func(f []int64) {
		if f[0] >= 0 && f[0] <= int64(step.Permits) && f[2] <= exact { // larger numbers are not exact in Lua
			n = step.Numbers{Kind: step.Kind(f[0]), Slices: f[1], Count: f[2], Length: f[3], Burst: f[4]}
		}
	})
	if err != nil {
		return step.Numbers{}
	}
	return n
}

// told is the list of limit parameters of one rule that is sent to the script, for states of one kind.
type told struct {
	rule    group.RuleID
	known   *step.Known // as sent with the call, because the decisions are recomputed from it
	kind    step.Kind
	slices  int64
	numbers []*step.Params
}

// tell adds the limit parameters of the ops' rules to the call.
func (c *call) tell(rules *group.Registry) {
	c.told = []*told{}
	for i := range c.ops {
		o := &c.ops[i]
		o.told = -1
		for j, t := range c.told {
			if t.rule == o.Rule && t.kind == o.Params.Kind && t.slices == o.Params.Slices {
				o.told = j
			}
		}
		if o.told < 0 {
			o.told = len(c.told)
			c.told = append(c.told, &told{
				rule: o.Rule, known: rules.Known(o.Rule).Now(), kind: o.Params.Kind, slices: o.Params.Slices,
			})
		}
		c.told[o.told].known = c.told[o.told].known.With(o.Params.Numbers())
	}
	for i := range c.ops {
		o := &c.ops[i]
		o.Request.Known = c.told[o.told].known
	}
	for _, t := range c.told {
		t.numbers = t.meant()
	}
}

// meant returns the parameters whose shapes are unambiguous.
func (t *told) meant() (all []*step.Params) {
	var meanings [256]int
	for _, n := range t.known.All() {
		if n.Kind == t.kind && n.Slices == t.slices {
			p := compiled(n)
			meanings[p.Shape()]++
			all = append(all, p)
		}
	}
	return slices.DeleteFunc(all, func(p *step.Params) bool { return meanings[p.Shape()] > 1 })
}

func compiled(n step.Numbers) *step.Params {
	p := step.Compile(step.Params{Kind: n.Kind, Slices: n.Slices, Count: n.Count, Length: n.Length, Burst: n.Burst})
	return &p
}

// digit is the base in which Lua holds amounts that exceed its exact numbers.
const digit = 1 << 24

// packNumbers appends the limit parameters: lists by rule, then for each take the index of its list and its own
// parameters.
func (c *call) packNumbers(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(c.told)))
	for _, t := range c.told {
		dst = append(dst, byte(t.kind))
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(t.numbers)))
		for _, p := range t.numbers {
			dst = append(dst, p.Shape())
			switch p.Kind {
			case step.Bucket:
				d := p.Drips()
				dst = number(dst, int64(d.Den), d.FillQ, int64(d.FillR), 0)
			case step.Interval:
				dst = number(dst, p.Count, p.Length, p.Burst/digit, p.Burst%digit)
			case step.Slices:
				dst = number(dst, p.SliceLength(), 0, 0, 0)
			default:
				dst = number(dst, p.Length, 0, 0, 0)
			}
		}
	}
	for i := range c.ops {
		o := &c.ops[i]
		dst = o.packOwn(binary.LittleEndian.AppendUint16(dst, uint16(o.told+1)))
	}
	return dst
}

// packOwn appends the parameters that states are converted to: those of the limit that the take's limit is a part of,
// and the maximum backlog.
func (o *op) packOwn(dst []byte) []byte {
	p, n := o.Params, o.Params.Numbers()
	bound, boundR := p.Cap()
	switch p.Kind {
	case step.Bucket:
		d := compiled(n).Drips()
		if boundR > 0 {
			bound++
		}
		return number(dst, int64(d.Den), d.FillQ, int64(d.FillR), bound)
	case step.Interval:
		return refills(number(dst, n.Burst/digit, n.Burst%digit), p, bound)
	}
	return number(dst, 0, 0, 0, 0)
}
