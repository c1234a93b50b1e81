package memcachestore

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// What the shapes of a rule's states mean is kept beside them: each server has one record for each rule whose keys it keeps,
// with all numbers that the rule has had there. A process adds its own before it writes states of theirs, and reads the
// record again when it meets a shape that it does not know. The record is a value like others: how many numbers there are,
// and of each the kind, sub-windows, count, length and burst. It does not expire; if it is lost, states of other numbers
// count as all used.

// forever is the time to live of what does not expire.
const forever = 0

// tell sees to it that the records hold the numbers of the call's limits.
func (c *call) tell(ctx context.Context) error {
	for i := range c.ops {
		op := &c.ops[i]
		if op.Request.Known.Has(op.Params) {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, c.s.timeout)
		record, err := c.s.tell(bounded, c.tasks[i].unit.server, op)
		cancel()
		if err != nil {
			return failure(ctx, "take", err)
		}
		c.learned(i, record)
	}
	return nil
}

// learned notes what a record says of an op's rule.
func (c *call) learned(i int, record *step.Known) {
	known := c.tasks[i].known
	known.Learn(record.All()...)
	c.ops[i].Request.Known = known.Now()
}

// tell adds the numbers of an op's limit to its rule's record on a server, and returns that.
func (s *Store) tell(ctx context.Context, v *server, op *group.Op) (*step.Known, error) {
	name := s.name(ruleDigest(op.Rule))
	for attempt := 0; ; attempt++ {
		if err := s.backOff(ctx, attempt); err != nil {
			return nil, err
		}
		record, found, err := s.record(ctx, v, name)
		if err != nil {
			return nil, err
		}
		if !record.Has(op.Params) {
			record = record.With(op.Params.Numbers())
			write := command{verb: add, key: name, value: encodeNumbers(name, record.All()), ttl: forever}
			if found.status == value {
				write.verb, write.cas = swap, found.cas
			}
			var answer [1]reply
			if err := s.exchange(ctx, v, []command{write}, answer[:]); err != nil {
				return nil, err
			}
			if answer[0].status != done { // another process was first
				continue
			}
		}
		return record, nil
	}
}

// record reads a rule's record, of which one that cannot be read is as good as none.
func (s *Store) record(ctx context.Context, v *server, name string) (*step.Known, reply, error) {
	var answer [1]reply
	if err := s.exchange(ctx, v, []command{{verb: get, key: name}}, answer[:]); err != nil {
		return nil, reply{}, err
	}
	var record *step.Known
	if answer[0].status == value {
		if numbers, err := decodeNumbers(name, answer[0].value); err == nil {
			record = record.With(numbers...)
		}
	}
	return record, answer[0], nil
}

// learn reads the records again of rules whose items have a shape that is not known: another process has changed the
// numbers since.
func (c *call) learn(ctx context.Context, now int64) error {
	for i := range c.ops {
		op, u := &c.ops[i], c.tasks[i].unit
		if !u.pending {
			continue
		}
		b := u.item.bucket(op.Params)
		if b == nil || b.state.ExpiresAt <= now {
			continue
		}
		if op.Request.Known.Finds(op.Params, b.state.Shape) {
			continue
		}
		record, _, err := c.s.record(ctx, u.server, c.s.name(ruleDigest(op.Rule)))
		if err != nil {
			return err
		}
		c.learned(i, record)
	}
	return nil
}

func encodeNumbers(name string, all []step.Numbers) []byte {
	b := make([]byte, headerSize, headerSize+16*len(all))
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, n := range all {
		for _, v := range [...]int64{int64(n.Kind), n.Slices, n.Count, n.Length, n.Burst} {
			b = binary.AppendUvarint(b, uint64(v))
		}
	}
	return seal(name, b)
}

func decodeNumbers(name string, value []byte) ([]step.Numbers, error) {
	r, err := open(name, value)
	if err != nil {
		return nil, err
	}
	var all []step.Numbers
	for range r.number(maxValue / 5) {
		if r.broken {
			break
		}
		all = append(all, step.Numbers{
			Kind: step.Kind(r.number(math.MaxUint8)), Slices: int64(r.number(step.MaxSlices)), Count: int64(r.number(math.MaxInt64)),
			Length: int64(r.number(math.MaxInt64)), Burst: int64(r.number(math.MaxInt64)),
		})
	}
	return all, r.close()
}
