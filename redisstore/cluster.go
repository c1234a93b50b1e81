package redisstore

import (
	"context"
	"sync"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// In a Cluster a script can access the keys of one hash slot only. Takes of several slots are therefore sent
// concurrently, slot by slot, and each group is all or nothing by itself. If one group is denied, the charges of the
// others are refunded. For a moment usage may thus be too high, never too low.

// slotGroup holds the takes of one call that share a hash slot.
type slotGroup struct {
	tag string
	ops []group.Op
	at  []int // their indexes in the call
	out []group.Answer
	err error
}

// groupBySlot groups takes by hash slot.
func (s *Store) groupBySlot(ops []group.Op) []*slotGroup {
	var groups []*slotGroup
	for i := range ops {
		tag := (&name{key: ops[i].Key, slot: ops[i].HashTag}).tag()
		var g *slotGroup
		for _, known := range groups {
			if known.tag == tag {
				g = known
			}
		}
		if g == nil {
			g = &slotGroup{tag: tag}
			groups = append(groups, g)
		}
		g.ops, g.at = append(g.ops, ops[i]), append(g.at, i)
	}
	return groups
}

// applyBySlot applies takes of several hash slots.
func (s *Store) applyBySlot(ctx context.Context, groups []*slotGroup, out []group.Answer) error {
	s.each(groups, func(g *slotGroup) {
		g.out = make([]group.Answer, len(g.ops))
		g.err = s.applyTogether(ctx, g.ops, g.out)
	})
	denied := false
	for _, g := range groups {
		if g.err != nil {
			return g.err
		}
		denied = denied || g.deniesCall()
	}
	if denied {
		s.each(groups, func(g *slotGroup) { s.refund(ctx, g) })
	}
	for _, g := range groups {
		for j, i := range g.at {
			out[i] = g.out[j]
		}
	}
	return nil
}

// each calls do for all groups concurrently, and returns when all calls have returned.
func (s *Store) each(groups []*slotGroup, do func(*slotGroup)) {
	var wait sync.WaitGroup
	for _, g := range groups[1:] {
		wait.Go(func() { do(g) })
	}
	do(groups[0])
	wait.Wait()
}

// deniesCall reports whether a take of the group denies the whole call.
func (g *slotGroup) deniesCall() bool {
	for i := range g.ops {
		if op := &g.ops[i]; !g.out[i].Allowed && !op.Shadow && op.Request.Cost != 0 {
			return true
		}
	}
	return false
}

// refund refunds the charges of a group for a call that another group denied. A group that itself denied has nothing to
// refund: it charged only takes that are charged even when denied. A take with an idempotency ID stays charged, because
// after a refund its retry would be free. If the refund fails, the charge expires like any other.
func (s *Store) refund(ctx context.Context, g *slotGroup) {
	if g.deniesCall() {
		return
	}
	var back []group.Op
	var at []int
	for i, op := range g.ops {
		d := &g.out[i]
		if d.Granted <= 0 || op.By.ChargeDenied || op.ID != 0 || op.At != 0 {
			continue
		}
		op.Request = step.Request{Cost: -d.Granted, Charge: op.Request.Charge, Settles: op.Request.Settles}
		op.At, op.Charged, op.Of = d.At, d.Granted, 0
		back = append(back, op)
		at = append(at, i)
		d.Granted, d.Delay = 0, 0
	}
	if len(back) == 0 {
		return
	}
	left := make([]group.Answer, len(back))
	if err := s.applyTogether(context.WithoutCancel(ctx), back, left); err != nil {
		return
	}
	for j, i := range at {
		g.out[i].Remaining, g.out[i].ResetAfter = left[j].Remaining, left[j].ResetAfter
	}
}

// Shards returns the number of parts of the store that can fail independently. It is 1 for a single server and 16 for a
// Cluster: equal ranges of its hash slots, which need not coincide with its servers. It is also 16 while the store has
// never been connected, because the servers may be a Cluster.
func (s *Store) Shards() int {
	if s.link.Load() != nil && !s.names.tagged {
		return 1
	}
	return clusterShards
}

const clusterShards = 16

// Shard returns the index of the shard that holds the take's key.
func (s *Store) Shard(t *sluice.Take) int { return s.shard(t.Key, t.HashTag) }

func (s *Store) shard(key, hashTag string) int {
	if s.link.Load() == nil || !s.names.tagged {
		return 0
	}
	return int(slotOf((&name{key: key, slot: hashTag}).tag())) * clusterShards / clusterSlots
}

const clusterSlots = 16384

// slotOf returns the hash slot of a hash tag: its CRC16 (XMODEM) modulo 16384.
func slotOf(tag string) uint16 {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % clusterSlots
}
