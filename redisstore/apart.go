package redisstore

import (
	"context"
	"sync"

	"github.com/sluiceproject/sluice"
)

// In a Cluster a script sees the keys of one slot only. Takes of several are sent at the same time, slot by slot, each
// group all or nothing by itself; if one of them is denied, what the others were charged is given back. So for a moment
// too much may be counted, never too little.

// slotGroup is the takes of one call that share a slot.
type slotGroup struct {
	tag   string
	takes []sluice.Take
	at    []int // where in the call they stand
	out   []sluice.Decision
	err   error
}

// apart sorts takes into groups.
func (s *Store) apart(takes []sluice.Take) []*slotGroup {
	var groups []*slotGroup
	for i := range takes {
		tag := (&name{key: takes[i].Key, slot: takes[i].Slot}).tag()
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
		g.takes, g.at = append(g.takes, takes[i]), append(g.at, i)
	}
	return groups
}

// applyApart applies takes of several slots.
func (s *Store) applyApart(ctx context.Context, groups []*slotGroup, out []sluice.Decision) error {
	s.each(groups, func(g *slotGroup) {
		g.out = make([]sluice.Decision, len(g.takes))
		g.err = s.applyTogether(ctx, g.takes, g.out)
	})
	denied := false
	for _, g := range groups {
		if g.err != nil {
			return g.err
		}
		denied = denied || g.vetoes()
	}
	if denied {
		s.each(groups, func(g *slotGroup) { s.giveBack(ctx, g) })
	}
	for _, g := range groups {
		for j, i := range g.at {
			out[i] = g.out[j]
		}
	}
	return nil
}

// each does something with all groups at the same time, and returns when all is done.
func (s *Store) each(groups []*slotGroup, do func(*slotGroup)) {
	var wait sync.WaitGroup
	for _, g := range groups[1:] {
		wait.Go(func() { do(g) })
	}
	do(groups[0])
	wait.Wait()
}

// vetoes tells whether a take of the group denies the whole call.
func (g *slotGroup) vetoes() bool {
	for i := range g.takes {
		if t := &g.takes[i]; !g.out[i].Allowed && !t.Rule.Shadow && t.Cost != 0 {
			return true
		}
	}
	return false
}

// giveBack returns what a group was charged for a call that another group denied. A group that denied was charged nothing
// but what it charges anyway. A take with an ID stays charged: given back, it would pass free when it comes again. If
// giving back fails the charge wears off as any other.
func (s *Store) giveBack(ctx context.Context, g *slotGroup) {
	if g.vetoes() {
		return
	}
	var back []sluice.Take
	var at []int
	for i, t := range g.takes {
		d := &g.out[i]
		if d.Granted <= 0 || t.Rule.ChargeDenied || t.ID != 0 || t.At != 0 {
			continue
		}
		back = append(back, sluice.Take{
			Rule: t.Rule, Limit: t.Limit, Key: t.Key, Slot: t.Slot, Cost: -d.Granted, At: d.At, Charged: d.Granted, Settles: t.Settles,
		})
		at = append(at, i)
		d.Granted, d.Delay = 0, 0
	}
	if len(back) == 0 {
		return
	}
	left := make([]sluice.Decision, len(back))
	if err := s.applyTogether(context.WithoutCancel(ctx), back, left); err != nil {
		return
	}
	for j, i := range at {
		g.out[i].Remaining, g.out[i].ResetAfter = left[j].Remaining, left[j].ResetAfter
	}
}

// Servers is how many parts of the store can fail by themselves: in a Cluster sixteen equal parts of its slots, which
// live on one server each or share one with others. A store that was never connected may turn out to be one.
func (s *Store) Servers() int {
	if s.link.Load() != nil && !s.names.tagged {
		return 1
	}
	return clusterParts
}

const clusterParts = 16

// Server is the number of the part that a take's key belongs to.
func (s *Store) Server(t *sluice.Take) int {
	if s.link.Load() == nil || !s.names.tagged {
		return 0
	}
	return int(slotOf((&name{key: t.Key, slot: t.Slot}).tag())) * clusterParts / clusterSlots
}

const clusterSlots = 16384

// slotOf is the slot of a hash tag: its CRC16 as XMODEM has it.
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
