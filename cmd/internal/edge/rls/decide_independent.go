package rls

import (
	"context"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/rules"
)

// decideIndependent decides requests whose descriptors do not stand and fall together. However many there are, it calls the
// store at most three times.
//
//   - First those that give back or only ask. What is given back is given back whatever becomes of the rest. If one that
//     asks denies the request, nothing is charged.
//   - Then all others. Those in quota mode, and with Shadow all of them, are charged if they have room and deny no request.
//   - If none in quota mode has room the request is denied after all, and what the others were charged is given back:
//     for a moment too much is counted, never too little.
func (d *Decider) decideIndependent(ctx context.Context, s *decision) error {
	now := time.Now().UnixMicro()
	var first, rest []int // descriptors
	for i := range s.Matched.Matches {
		m := &s.Matched.Matches[i]
		switch cost := s.descriptors[i].Cost; {
		case m.N == 0:
		case cost > 0:
			rest = append(rest, i)
		default:
			first = append(first, i)
			for j := m.First; cost < 0 && j < m.First+m.N; j++ {
				s.Matched.Takes[j].Receipt = now // of the window at hand; a log gives nothing back, it has no such entry
			}
		}
	}
	if err := d.decideSome(ctx, s, first); err != nil {
		return err
	}
	for _, i := range first {
		if !d.options.Shadow && !d.quota(&s.Matched.Matches[i]) && !s.fits(i) {
			return d.peek(ctx, s, rest)
		}
	}
	if err := d.decideRest(ctx, s, rest); err != nil {
		return err
	}
	return d.refund(ctx, s, d.refundTakes(s, rest))
}

// decideRest decides descriptors that take something, in one call.
func (d *Decider) decideRest(ctx context.Context, s *decision, descriptors []int) error {
	for _, i := range descriptors {
		m := &s.Matched.Matches[i]
		if d.isIndependent(m) {
			for j, r := range m.Limit.Rules {
				s.Matched.Takes[m.First+j].Rule = d.silentRule(s.set, m.Limit, r)
			}
		}
	}
	err := d.decideSome(ctx, s, descriptors)
	for _, i := range descriptors {
		m := &s.Matched.Matches[i]
		if !d.isIndependent(m) {
			continue
		}
		for j, r := range m.Limit.Rules {
			s.Matched.Takes[m.First+j].Rule = r
			if out := &s.Decisions[m.First+j]; out.ShadowDenied && !r.Shadow { // it was not asked whether the request may go on
				out.Allowed, out.ShadowDenied = false, false
			}
		}
	}
	return err
}

// isIndependent reports whether a descriptor that is over its limit denies no other descriptor of the request.
func (d *Decider) isIndependent(m *rules.DescriptorMatch) bool { return d.options.Shadow || d.quota(m) }

// refundTakes are the descriptors whose charges do not stand: those that are apart and have room in some of their limits but
// not in all, and if the request is denied because no quota is left, all.
func (d *Decider) refundTakes(s *decision, rest []int) []int {
	quotas, passed, vetoed := false, false, false
	for i := range s.Matched.Matches {
		if m := &s.Matched.Matches[i]; d.quota(m) {
			quotas = true
			passed = passed || s.fits(i) // as one without a limit does
		} else {
			vetoed = vetoed || !s.fits(i)
		}
	}
	denied := quotas && !passed && !vetoed && !d.options.Shadow // who is vetoed was not charged
	var undone []int
	for _, i := range rest {
		if denied || d.isIndependent(&s.Matched.Matches[i]) && !s.fits(i) {
			undone = append(undone, i)
		}
	}
	return undone
}

// decideSome decides the takes of some descriptors in one call.
func (d *Decider) decideSome(ctx context.Context, s *decision, descriptors []int) error {
	var takes []sluice.Take
	for _, i := range descriptors {
		m := &s.Matched.Matches[i]
		takes = append(takes, s.Matched.Takes[m.First:m.First+m.N]...)
	}
	if len(takes) == 0 {
		return nil
	}
	out := make([]sluice.Decision, len(takes))
	_, err := d.limiter.Decide(ctx, takes, out)
	for _, i := range descriptors {
		m := &s.Matched.Matches[i]
		copy(s.Decisions[m.First:m.First+m.N], out)
		out = out[m.N:]
	}
	return err
}

// refund undoes what descriptors were charged.
func (d *Decider) refund(ctx context.Context, s *decision, descriptors []int) error {
	var takes []sluice.Take
	for _, i := range descriptors {
		m := &s.Matched.Matches[i]
		for j := m.First; j < m.First+m.N; j++ {
			was := &s.Decisions[j]
			back, ok := s.Matched.Takes[j].Settlement(was, 0)
			if !ok || was.Source.Degraded() || back.Rule.ChargeDenied {
				continue
			}
			was.Remaining += was.Granted
			takes = append(takes, back)
		}
	}
	if len(takes) == 0 {
		return nil
	}
	_, err := d.limiter.Decide(context.WithoutCancel(ctx), takes, make([]sluice.Decision, len(takes)))
	return err
}

// peek says of descriptors whether they would have had room, and charges only those whose rules charge what is denied.
func (d *Decider) peek(ctx context.Context, s *decision, descriptors []int) error {
	for _, i := range descriptors {
		m := &s.Matched.Matches[i]
		for j := m.First; j < m.First+m.N; j++ {
			if t := &s.Matched.Takes[j]; !t.Rule.ChargeDenied {
				t.Cost = 0
			}
		}
	}
	if err := d.decideSome(ctx, s, descriptors); err != nil {
		return err
	}
	for _, i := range descriptors {
		m := &s.Matched.Matches[i]
		for j := m.First; j < m.First+m.N; j++ {
			out := &s.Decisions[j]
			if s.Matched.Takes[j].Cost == 0 && out.Allowed && !out.Source.Degraded() && !out.ShadowDenied {
				out.Allowed = s.descriptors[i].Cost <= max(1, out.Remaining) // that one has room was asked
			}
		}
	}
	return nil
}

// silents are rules of a set that say what they would have said and deny no request, made when first needed.
type silents struct {
	set *rules.Set
	of  sync.Map // *sluice.Rule → *sluice.Rule
}

// silentRule is the rule in shadow: it denies no request. It has the same name, and so the same counts.
func (d *Decider) silentRule(set *rules.Set, l *rules.DescriptorLimit, r *sluice.Rule) *sluice.Rule {
	if r.Shadow {
		return r
	}
	known := d.silents.Load()
	if known == nil || known.set != set {
		known = &silents{set: set}
		d.silents.Store(known)
	}
	if kept, ok := known.of.Load(r); ok {
		return kept.(*sluice.Rule)
	}
	quiet := private.Silenced(r).(*sluice.Rule)
	if l.Source != nil { // the limits that requests bring are too many to keep
		known.of.Store(r, quiet)
	}
	return quiet
}
