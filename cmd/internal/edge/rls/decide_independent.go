package rls

import (
	"context"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/rules"
)

// decideIndependent decides requests whose descriptors are not charged all or none. It calls the store at most three times,
// for any number of descriptors.
//
//   - First the descriptors that are refunds or peeks. Refunds are made regardless of the outcome of the request. If a peek
//     denies the request, nothing is charged.
//   - Then all others. Descriptors in quota mode, and with Shadow all, are charged if they are within their limits, and do
//     not deny the request.
//   - If all descriptors in quota mode are over their limits, the request is denied, and the charges of the others are
//     refunded: their usage is too high for a moment, never too low.
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
				s.Matched.Takes[j].Receipt = now // of the current window; a log refunds nothing, because it has no entry with this receipt
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

// decideRest decides the descriptors with a positive cost, in one call.
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
			if out := &s.Decisions[m.First+j]; out.ShadowDenied && !r.Shadow { // denied: only the rule used for the call is in shadow mode
				out.Allowed, out.ShadowDenied = false, false
			}
		}
	}
	return err
}

// isIndependent reports whether a descriptor that is over its limit denies no other descriptor of the request.
func (d *Decider) isIndependent(m *rules.DescriptorMatch) bool { return d.options.Shadow || d.quota(m) }

// refundTakes returns the descriptors whose charges are refunded: independent ones that are over some but not all of their
// limits or, if the request is denied because all descriptors in quota mode are over their limits, all.
func (d *Decider) refundTakes(s *decision, rest []int) []int {
	quotas, passed, vetoed := false, false, false
	for i := range s.Matched.Matches {
		if m := &s.Matched.Matches[i]; d.quota(m) {
			quotas = true
			passed = passed || s.fits(i) // true for a descriptor without a limit
		} else {
			vetoed = vetoed || !s.fits(i)
		}
	}
	denied := quotas && !passed && !vetoed && !d.options.Shadow // if vetoed, nothing was charged
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

// refund refunds the charges of descriptors.
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

// peek decides descriptors without charging them, except those of rules with ChargeDenied.
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
				out.Allowed = s.descriptors[i].Cost <= max(1, out.Remaining) // the peek was for a cost of 1
			}
		}
	}
	return nil
}

// silents are copies of the rules of a set in shadow mode, created when first needed.
type silents struct {
	set *rules.Set
	of  sync.Map // *sluice.Rule → *sluice.Rule
}

// silentRule returns a copy of the rule in shadow mode. It has the same name, and so the same buckets.
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
	if l.Source != nil { // limits of requests are not stored, because there can be too many
		known.of.Store(r, quiet)
	}
	return quiet
}
