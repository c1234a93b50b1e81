package memcachestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxCharges is how many IDs an item remembers. Beyond that the older half gets keys of its own: every take of the key
// reads and writes the item.
const maxCharges = 64

// write swaps the items that have changed for what they were read as. It tells how many were stored and how many were
// lost to others.
func (s *Store) write(ctx context.Context, units []*unit, now int64) (stored, lost int, err error) {
	changed := make([]*unit, 0, len(units))
	for _, u := range units {
		if err := u.prepare(now); err != nil {
			return 0, 0, err
		}
		if !bytes.Equal(u.raw, u.next) {
			changed = append(changed, u)
		}
	}
	if err := s.spill(ctx, changed, now); err != nil {
		return 0, 0, err
	}
	wall := time.Now()
	var mu sync.Mutex // guards stored and lost
	err = onServers(changed, func(v *server, units []*unit) error {
		commands, replies := make([]command, len(units)), make([]reply, len(units))
		for i, u := range units {
			commands[i] = u.command(s.ttl(now, u.item.expiresAt(), wall))
		}
		if err := s.exchange(ctx, v, commands, replies); err != nil {
			s.restore(ctx, v, units, commands, err)
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for i, u := range units {
			if u.stored = replies[i].status == done; u.stored {
				stored++
			} else {
				lost++
			}
		}
		return nil
	})
	s.stats.casConflicts.Add(int64(lost))
	return stored, lost, err
}

// restore puts back what a server has dropped. One that finds no room for a new value refuses it and deletes the old
// one, so that nobody reads what is stale; here that would be a fresh budget. The room of the old value is free then.
func (s *Store) restore(ctx context.Context, v *server, units []*unit, commands []command, err error) {
	if !errors.Is(err, errRefused) {
		return
	}
	for i, u := range units {
		if commands[i].verb == swap {
			// An error changes nothing: the call has failed, and there is nobody else to tell.
			_ = s.exchange(ctx, v, []command{{verb: add, key: u.name, value: u.raw, ttl: commands[i].ttl}}, make([]reply, 1))
		}
	}
}

// prepare encodes the item. What has worn off is dropped if something else has changed too: that alone is no reason to
// write.
func (u *unit) prepare(now int64) error {
	u.next = u.item.encode(u.name)
	if bytes.Equal(u.raw, u.next) {
		return nil
	}
	u.item.tidy(now)
	u.next = u.item.encode(u.name)
	if len(u.next) > maxValue {
		return fmt.Errorf("the state of one key has %d bytes, at most %d can be stored", len(u.next), maxValue)
	}
	return nil
}

// command stores what was prepared, if the item is still what was read.
func (u *unit) command(ttl int64) command {
	switch {
	case u.raw == nil:
		return command{verb: add, key: u.name, value: u.next, ttl: ttl}
	case u.next == nil:
		return command{verb: remove, key: u.name, cas: u.cas}
	}
	return command{verb: swap, key: u.name, value: u.next, ttl: ttl, cas: u.cas}
}

// spill gives IDs keys of their own where items have too many. Only those are moved that were charged by others before:
// whether this call's will be is not certain until the item is stored. They are written before the item lets go of
// them, and are true whether it then is stored or not.
func (s *Store) spill(ctx context.Context, units []*unit, now int64) error {
	for _, u := range units {
		n := 0
		for n < maxCharges/2 && len(u.item.charges) > maxCharges && !u.item.charges[n].fresh {
			n++
		}
		if n == 0 {
			continue
		}
		wall := time.Now()
		commands, replies := make([]command, n), make([]reply, n)
		for i := range n {
			k := &u.item.charges[i]
			name := s.chargeName(u, k.id)
			commands[i] = command{verb: put, key: name, value: encodeCharge(name, k), ttl: s.ttl(now, k.until, wall)}
		}
		if err := s.exchange(ctx, u.server, commands, replies); err != nil {
			return err
		}
		u.item.charges = slices.Delete(u.item.charges, 0, n)
		u.next = u.item.encode(u.name)
	}
	return nil
}

// unreadable is what to do about an item that cannot be read.
type unreadable bool

const (
	fail    unreadable = false
	replace unreadable = true
)

// changer changes an item.
type changer func(it *item, now int64)

// update changes one item, however often others come first.
func (s *Store) update(ctx context.Context, u *unit, bad unreadable, change changer) error {
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
