package rls

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice"
)

// independent tells whether there are descriptors in quota mode of which one may be over its limit while the request
// goes on: there is more than one of them.
func (d *Decider) independent(s *decision) bool {
	n := 0
	for i := range s.matched.Each {
		if d.quota(&s.matched.Each[i]) {
			n++
		}
	}
	return n > 1
}

// decideApart decides requests whose descriptors do not stand and fall together.
//
//   - What is given back is given back whatever becomes of the rest.
//   - Descriptors that only ask are asked first: if one of them denies the request, nothing is charged.
//   - With Shadow the request goes on whatever is said of it, so each descriptor is charged if it has room.
//   - Otherwise those that are not in quota mode are decided together. If they have room, each of the others is decided by
//     itself. If none of the others has room the request is denied after all, and the first are given back: for a
//     moment too much is counted, never too little.
func (d *Decider) decideApart(ctx context.Context, s *decision) error {
	now := time.Now().UnixMicro()
	var regular, quota []int // descriptors that are charged
	denied := false
	for i := range s.matched.Each {
		m := &s.matched.Each[i]
		cost := s.descriptors[i].Cost
		if m.N == 0 {
			continue
		}
		if cost < 0 {
			for j := m.First; j < m.First+m.N; j++ {
				s.matched.Takes[j].At = now // of the window at hand; a log gives nothing back, it has no such entry
			}
		}
		switch {
		case cost <= 0 || d.options.Shadow:
			if err := d.decideSome(ctx, s, i); err != nil {
				return err
			}
			denied = denied || !d.options.Shadow && !d.quota(m) && !s.fits(i)
		case d.quota(m):
			quota = append(quota, i)
		default:
			regular = append(regular, i)
		}
	}
	if denied {
		return d.look(ctx, s, append(regular, quota...))
	}
	if err := d.decideSome(ctx, s, regular...); err != nil {
		return err
	}
	if !s.fits(regular...) {
		return d.look(ctx, s, quota)
	}
	return d.decideQuota(ctx, s, regular, quota)
}

// fits tells whether all of the descriptors have room.
func (s *decision) fits(descriptors ...int) bool {
	for _, i := range descriptors {
		m := &s.matched.Each[i]
		for j := m.First; j < m.First+m.N; j++ {
			if !s.out[j].Allowed {
				return false
			}
		}
	}
	return true
}

// decideSome decides the takes of some descriptors together.
func (d *Decider) decideSome(ctx context.Context, s *decision, descriptors ...int) error {
	var takes []sluice.Take
	for _, i := range descriptors {
		m := &s.matched.Each[i]
		takes = append(takes, s.matched.Takes[m.First:m.First+m.N]...)
	}
	if len(takes) == 0 {
		return nil
	}
	out := make([]sluice.Decision, len(takes))
	_, err := d.limiter.Decide(ctx, takes, out)
	for _, i := range descriptors {
		m := &s.matched.Each[i]
		copy(s.out[m.First:m.First+m.N], out)
		out = out[m.N:]
	}
	return err
}

// decideQuota decides descriptors of which one with room is enough.
func (d *Decider) decideQuota(ctx context.Context, s *decision, regular, quota []int) error {
	for _, i := range quota {
		if err := d.decideSome(ctx, s, i); err != nil {
			return err
		}
	}
	some := false
	for i := range s.matched.Each {
		if d.quota(&s.matched.Each[i]) {
			if some = true; s.fits(i) { // one without a limit does
				return nil
			}
		}
	}
	if !some {
		return nil
	}
	return d.giveBack(ctx, s, regular)
}

// giveBack undoes what descriptors were charged.
func (d *Decider) giveBack(ctx context.Context, s *decision, descriptors []int) error {
	var takes []sluice.Take
	for _, i := range descriptors {
		m := &s.matched.Each[i]
		for j := m.First; j < m.First+m.N; j++ {
			t, was := s.matched.Takes[j], &s.out[j]
			if was.Granted <= 0 || was.Source.Degraded() || t.Rule.ChargeDenied {
				continue
			}
			t.Cost, t.At = -was.Granted, was.At
			was.Remaining += was.Granted
			takes = append(takes, t)
		}
	}
	if len(takes) == 0 {
		return nil
	}
	_, err := d.limiter.Decide(context.WithoutCancel(ctx), takes, make([]sluice.Decision, len(takes)))
	return err
}

// look says of descriptors whether they would have had room, and charges only those whose rules charge what is denied.
func (d *Decider) look(ctx context.Context, s *decision, descriptors []int) error {
	for _, i := range descriptors {
		m := &s.matched.Each[i]
		takes := s.matched.Takes[m.First : m.First+m.N]
		for j := range takes {
			if !takes[j].Rule.ChargeDenied {
				takes[j].Cost = 0
			}
		}
		if err := d.decideSome(ctx, s, i); err != nil {
			return err
		}
		for j := range takes {
			if out := &s.out[m.First+j]; takes[j].Cost == 0 && out.Allowed && !out.Source.Degraded() && !out.Shadow {
				out.Allowed = s.descriptors[i].Cost <= max(1, out.Remaining) // that one has room was asked
			}
		}
	}
	return nil
}
