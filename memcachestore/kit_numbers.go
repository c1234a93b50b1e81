package memcachestore

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// The limit parameters of a rule's shapes are stored with its states: each shard has one record for each rule whose
// keys it has, with all parameters that the rule has had there. A process adds its own parameters before it writes
// states under them, and reads the record again when it finds an unknown shape. The record is an ordinary value: the
// number of parameter sets, and for each the kind, sub-windows, count, length and burst. It does not expire. If it is
// lost, states of other parameters count as fully used.

// publish adds the parameters of the call's limits to the records that lack them.
func (c *call) publish(ctx context.Context) error {
	for i := range c.ops {
		op := &c.ops[i]
		if op.Request.Known.Has(op.Params) {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, c.s.timeout)
		record, err := c.s.publish(bounded, c.tasks[i].unit.shard, op)
		cancel()
		if err != nil {
			return c.s.failure(ctx, "take", err)
		}
		c.learned(i, record)
	}
	return nil
}

// learned adds a record to the known parameters of an op's rule.
func (c *call) learned(i int, record *step.Known) {
	known := c.tasks[i].known
	known.Learn(record.All()...)
	c.ops[i].Request.Known = known.Now()
}

// publish adds the parameters of an op's limit to its rule's record on a shard, and returns the record.
func (s *kit) publish(ctx context.Context, b *shard, op *group.Op) (*step.Known, error) {
	name := s.name(ruleDigest(op.Rule))
	for attempt := 0; ; attempt++ {
		if err := s.backOff(ctx, attempt); err != nil {
			return nil, err
		}
		record, found, err := s.record(ctx, b, name)
		if err != nil {
			return nil, err
		}
		if !record.Has(op.Params) {
			record = record.With(op.Params.Numbers())
			write := []swap{{key: name, version: found.version, value: encodeNumbers(name, record.All()), ttl: forever}}
			if err := b.swap(ctx, write); err != nil {
				return nil, err
			}
			if write[0].lost {
				continue
			}
		}
		return record, nil
	}
}

// record reads a rule's record. A record that cannot be decoded is treated as missing.
func (s *kit) record(ctx context.Context, b *shard, name string) (*step.Known, stored, error) {
	found := make([]stored, 1)
	if err := b.get(ctx, []string{name}, found); err != nil {
		return nil, stored{}, err
	}
	var record *step.Known
	if numbers, err := decodeNumbers(name, found[0].value); err == nil {
		record = record.With(numbers...)
	}
	return record, found[0], nil
}

// learn reads the records of rules whose items have an unknown shape, because another process has changed the limit
// since.
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
		record, _, err := c.s.record(ctx, u.shard, c.s.name(ruleDigest(op.Rule)))
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
