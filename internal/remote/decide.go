package remote

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// decideLocal decides takes, some of which may be decided from leases or estimates.
func (en *Engine) decideLocal(ctx context.Context, takes []group.Op, out []group.Answer) error {
	now := en.now()
	if len(takes) == 1 && en.decideFromEstimate(&takes[0], now, &out[0]) { // the common case allocates nothing
		return nil
	}
	if len(takes) == 1 && en.canLease(&takes[0]) {
		if e := en.leases.getOrCreate(&takes[0]); e != nil {
			if en.spend(ctx, e, &takes[0], now, &out[0]) {
				return nil
			}
			return en.leaseFromStore(ctx, takes, out, []*lease{e}, []int{0}, now)
		}
	}
	held := make([]*lease, len(takes))
	var rest []int // takes that need the store
	denied := false
	for i := range takes {
		t := &takes[i]
		if en.decideFromEstimate(t, now, &out[i]) {
			denied = denied || deniesCall(t, &out[i])
			continue
		}
		if en.canLease(t) {
			held[i] = en.leases.getOrCreate(t)
		}
		if e := held[i]; e != nil {
			if en.spend(ctx, e, t, now, &out[i]) {
				denied = denied || !out[i].Allowed
				continue
			}
		}
		rest = append(rest, i)
	}
	if denied {
		asked := rest[:0]
		for _, i := range rest { // the store would not have charged the others either
			if takes[i].By.ChargeDenied {
				asked = append(asked, i)
			} else {
				out[i] = group.Answer{Allowed: true, Source: group.SourceDenyCache, Limit: takes[i].Params.Limit()}
			}
		}
		rest = asked
		en.undoLocal(takes, out, held)
		en.returnLate(ctx, held...)
	}
	if len(rest) == 0 {
		return nil
	}
	return en.leaseFromStore(ctx, takes, out, held, rest, now)
}

// now returns the time from the monotonic clock only, because reading the wall clock would take as long as the rest of
// a decision from a lease.
func (en *Engine) now() time.Time {
	return en.estimates.startedAt.Add(time.Since(en.estimates.startedAt))
}

// deniesCall reports whether the decision denies the whole call.
func deniesCall(t *group.Op, d *group.Answer) bool {
	return !d.Allowed && !t.By.Shadow && t.Request.Cost != 0
}

// leaseFromStore calls the store for the takes that no lease decided, and leases more than their cost if there is
// demand.
func (en *Engine) leaseFromStore(ctx context.Context, takes []group.Op, out []group.Answer, held []*lease, rest []int, now time.Time) error {
	instances := en.instanceCount()
	asked, decisions := make([]group.Op, len(rest)), make([]group.Answer, len(rest))
	for j, i := range rest {
		asked[j] = takes[i]
		if e := held[i]; e != nil {
			limit := en.leasedLimit(takes[i].Params, instances)
			asked[j].Params = limit
			if more := min(e.leaseSize(takes[i].Request.Cost, instances, now), limit.Limit()-takes[i].Request.Cost); more > 0 {
				asked[j].Request.Cost, asked[j].Request.Min = takes[i].Request.Cost+more, takes[i].Request.Cost
			}
		}
	}
	if err := en.decideRemote(ctx, asked, decisions, now); err != nil {
		return err
	}
	denied, answered := false, time.Now()
	for j, i := range rest {
		d := &decisions[j]
		denied = denied || deniesCall(&takes[i], d)
		en.updateEstimate(&takes[i], d, answered)
		if e := held[i]; e != nil {
			window := takes[i].Params.Kind == step.Window
			switch {
			case d.Source == group.SourceStore && (d.Granted > 0 || window && !d.Never):
				e.grant(en, takes[i].Params, d, takes[i].Request.Cost, now)
				en.leases.startJanitor(en)
			case d.Source == group.SourceStore && !d.Allowed && !d.Never:
				e.markDrained(takes[i].Params, d, takes[i].Request.Cost, now)
			}
			d.Limit = takes[i].Params.Limit()
			if leased := d.Granted - takes[i].Request.Cost; leased > 0 { // held in this instance instead of the store
				d.Granted, d.Remaining = takes[i].Request.Cost, d.Remaining+leased
			}
		}
		out[i] = *d
	}
	if denied {
		en.undoLocal(takes, out, held)
	}
	en.returnLate(ctx, held...)
	return nil
}

// undoLocal returns the charges of a call to leases and estimates, because another take of the call was denied.
func (en *Engine) undoLocal(takes []group.Op, out []group.Answer, held []*lease) {
	for i := range takes {
		switch d := &out[i]; {
		case d.Granted <= 0:
		case d.Source == group.SourceLease:
			held[i].unspend(takes[i].Params, d.At, d.Granted)
			d.Remaining, d.Granted = d.Remaining+d.Granted, 0
		case d.Source == group.SourceEventual && !takes[i].By.ChargeDenied && takes[i].At == 0:
			en.undoEstimate(&takes[i], d, time.Now())
		}
	}
}
