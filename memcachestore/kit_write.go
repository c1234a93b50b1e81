package memcachestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// maxCharges is the maximum number of charges in an item. Beyond it the older half moves to separate keys, because
// every take of the key reads and writes the item.
const maxCharges = 64

// write swaps the items that have changed since they were read. It returns the numbers of stored swaps and of swaps
// lost to other processes.
func (s *kit) write(ctx context.Context, units []*unit, now int64) (stored, lost int, err error) {
	changed := make([]*unit, 0, len(units))
	for _, u := range units {
		if err := u.prepare(now); err != nil {
			return 0, 0, err
		}
		if !bytes.Equal(u.old.value, u.next) {
			changed = append(changed, u)
		}
	}
	if err := s.spill(ctx, changed, now); err != nil {
		return 0, 0, err
	}
	var mu sync.Mutex // guards stored and lost
	err = onShards(changed, func(b *shard, units []*unit) error {
		swaps := make([]swap, len(units))
		for i, u := range units {
			swaps[i] = swap{key: u.name, version: u.old.version, old: u.old.value, value: u.next, ttl: s.ttl(now, u.item.expiresAt())}
		}
		if err := b.swap(ctx, swaps); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for i, u := range units {
			if u.stored = !swaps[i].lost; u.stored {
				stored++
			} else {
				lost++
			}
		}
		return nil
	})
	s.casConflicts.Add(int64(lost))
	return stored, lost, err
}

// prepare encodes the item. Expired parts are removed only if other parts have changed, because they are no reason to
// write.
func (u *unit) prepare(now int64) error {
	u.next = u.item.encode(u.name)
	if bytes.Equal(u.old.value, u.next) {
		return nil
	}
	u.item.tidy(now)
	u.next = u.item.encode(u.name)
	if len(u.next) > maxValue {
		return fmt.Errorf("the state of one key has %d bytes, maximum %d", len(u.next), maxValue)
	}
	return nil
}

// spill moves charges to separate keys where items have too many. It moves only charges that are stored already,
// because those of this call count only once the item is stored. They are written before the item drops them, and are
// valid whether or not the item is then stored.
func (s *kit) spill(ctx context.Context, units []*unit, now int64) error {
	for _, u := range units {
		n := 0
		for n < maxCharges/2 && len(u.item.charges) > maxCharges && !u.item.charges[n].fresh {
			n++
		}
		if n == 0 {
			continue
		}
		swaps := make([]swap, n)
		for i := range n {
			k := &u.item.charges[i]
			name := s.chargeName(u, k.id)
			swaps[i] = swap{key: name, value: encodeCharge(name, k), ttl: s.ttl(now, k.until), overwrite: true}
		}
		if err := u.shard.swap(ctx, swaps); err != nil {
			return err
		}
		u.item.charges = slices.Delete(u.item.charges, 0, n)
		u.next = u.item.encode(u.name)
	}
	return nil
}

// unreadable determines how to treat an item that cannot be decoded.
type unreadable bool

const (
	fail    unreadable = false
	replace unreadable = true
)

// changer modifies an item.
type changer func(it *item, now int64)

// update modifies one item, and again after each lost swap.
func (s *kit) update(ctx context.Context, u *unit, bad unreadable, change changer) error {
	for attempt := 0; ; attempt++ {
		if err := s.backOff(ctx, attempt); err != nil {
			return err
		}
		if err := s.read(ctx, []*unit{u}); err != nil {
			if bad == fail || !errors.Is(err, errValue) {
				return err
			}
			u.item = &item{}
		}
		now := s.micros()
		change(u.item, now)
		_, lost, err := s.write(ctx, []*unit{u}, now)
		if err != nil || lost == 0 {
			return err
		}
	}
}
