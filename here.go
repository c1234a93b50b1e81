package sluice

import (
	"context"
	"time"
)

// decideHere decides takes of which some may be answered without the store, from leases or from what is believed.
func (l *Limiter) decideHere(ctx context.Context, takes []Take, out []Decision) error {
	now := l.now()
	if len(takes) == 1 && l.believe(&takes[0], now, &out[0]) { // the common case allocates nothing
		return nil
	}
	if len(takes) == 1 && l.canLease(&takes[0]) {
		if e := l.leases.of(&takes[0]); e != nil {
			if l.spend(ctx, e, &takes[0], now, &out[0]) {
				return nil
			}
			return l.leaseMore(ctx, takes, out, []*lease{e}, []int{0}, now)
		}
	}
	held := make([]*lease, len(takes))
	var rest []int // takes that only the store can answer
	denied := false
	for i := range takes {
		t := &takes[i]
		if l.believe(t, now, &out[i]) {
			denied = denied || vetoes(t, &out[i])
			continue
		}
		if l.canLease(t) {
			held[i] = l.leases.of(t)
		}
		if e := held[i]; e != nil {
			if l.spend(ctx, e, t, now, &out[i]) {
				denied = denied || !out[i].Allowed
				continue
			}
		}
		rest = append(rest, i)
	}
	if denied {
		asked := rest[:0]
		for _, i := range rest { // others would not be charged, and so are not asked
			if takes[i].Rule.ChargeDenied {
				asked = append(asked, i)
			} else {
				out[i] = Decision{Allowed: true, Source: SourceCache, Limit: takes[i].Effective().params.Limit()}
			}
		}
		rest = asked
		l.unspend(takes, out, held)
	}
	if len(rest) == 0 {
		return nil
	}
	return l.leaseMore(ctx, takes, out, held, rest, now)
}

// now is the time, by the monotonic clock alone: reading that of the day as well would take as long as the rest of a
// decision that a lease answers.
func (l *Limiter) now() time.Time { return l.views.born.Add(time.Since(l.views.born)) }

// vetoes tells that the decision denies a whole call.
func vetoes(t *Take, d *Decision) bool { return !d.Allowed && !t.Rule.Shadow && t.Cost != 0 }

// leaseMore asks the store about the takes that no lease answered, for more than their cost where that is worth it.
func (l *Limiter) leaseMore(ctx context.Context, takes []Take, out []Decision, held []*lease, rest []int, now time.Time) error {
	nodes := l.liveNodes()
	asked, decisions := make([]Take, len(rest)), make([]Decision, len(rest))
	for j, i := range rest {
		asked[j] = takes[i]
		if e := held[i]; e != nil {
			limit := l.leasedLimit(takes[i].Effective(), nodes)
			asked[j].Limit = limit
			if more := min(e.want(takes[i].Cost, nodes, now), limit.params.Limit()-takes[i].Cost); more > 0 {
				asked[j].Cost, asked[j].Min = takes[i].Cost+more, takes[i].Cost
			}
		}
	}
	if err := l.guarded(ctx, asked, decisions, now); err != nil {
		return err
	}
	denied, answered := false, time.Now()
	for j, i := range rest {
		d := &decisions[j]
		denied = denied || vetoes(&takes[i], d)
		l.learn(&takes[i], d, answered)
		if e := held[i]; e != nil {
			window := takes[i].Effective().Algorithm == FixedWindow
			switch {
			case d.Source == SourceStore && (d.Granted > 0 || window && !d.Never):
				e.grant(l, takes[i].Effective(), d, takes[i].Cost, now)
				l.leases.sweep(l)
			case d.Source == SourceStore && !d.Allowed && !d.Never:
				e.empty(takes[i].Effective(), d, takes[i].Cost, now)
			}
			d.Limit = takes[i].Effective().params.Limit()
			if leased := d.Granted - takes[i].Cost; leased > 0 { // and remains, here instead of at the store
				d.Granted, d.Remaining = takes[i].Cost, d.Remaining+leased
			}
		}
		out[i] = *d
	}
	if denied {
		l.unspend(takes, out, held)
	}
	return nil
}

// unspend gives back what a call took here that was denied for another reason.
func (l *Limiter) unspend(takes []Take, out []Decision, held []*lease) {
	for i := range takes {
		switch d := &out[i]; {
		case d.Granted <= 0:
		case d.Source == SourceLease:
			held[i].unspend(takes[i].Effective(), d.At, d.Granted)
			d.Remaining, d.Granted = d.Remaining+d.Granted, 0
		case d.Source == SourceEventual && !takes[i].Rule.ChargeDenied && takes[i].At == 0:
			l.disbelieve(&takes[i], d, time.Now())
		}
	}
}
