package permit

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// Permit is what a caller in flight holds of one or several limits.
type Permit struct {
	renewal *Renewal
	ttl     time.Duration // the shortest of those held

	mu       sync.Mutex // guards the fields below
	held     []heldPermit
	busy     bool      // a renewal is on its way to the store
	released time.Time // zero: not yet

	// Of the renewal.
	queue      *renewalQueue
	due        time.Time
	next, last *Permit
}

// heldPermit is a permit of one limit.
type heldPermit struct {
	op           group.Op // that took it
	receipt      int64    // its name at the store; noReceipt if that does not know of it
	localReceipt int64    // its name in this process' own count, which goes on while the store cannot answer; 0: none
}

// noReceipt is a name that no permit has: to renew it takes one.
const noReceipt = 1

// renewalsPerTTL is how often a permit is renewed before it would lapse.
const renewalsPerTTL = 3

// retriesPerTTL is how often meanwhile what the store did not answer is tried again.
const retriesPerTTL = 10

// countsLocally reports whether permits of the op's rule are counted in this process too.
func (k *Renewal) countsLocally(op *group.Op) bool {
	return k.remote && op.By.OnFailure == group.FailLocal
}

// Holds reports whether an op that was answered so holds a permit.
func Holds(op *group.Op, a *group.Answer) bool {
	return op.Params.Kind == step.Permits && a.Granted > 0 && op.At == 0 &&
		(a.Source == group.SourceStore || a.Source == group.SourceFailLocal)
}

// Add has the permit hold what an op was granted. The op's texts are copied.
func (k *Renewal) Add(p *Permit, op group.Op, a *group.Answer) {
	op.Key, op.HashTag = strings.Clone(op.Key), strings.Clone(op.HashTag)
	op.ID = 0
	op.Request = step.Request{Cost: a.Granted, Charge: op.Request.Charge} // it is renewed and released, which is no settlement
	h := heldPermit{op: op, receipt: a.At}
	if a.Source == group.SourceFailLocal {
		h.receipt, h.localReceipt = noReceipt, a.At
	} else if k.countsLocally(&op) {
		h.localReceipt = k.engine.LocalPermit(&op, 0, a.Granted)
	}
	ttl := time.Duration(op.Params.Length) * time.Microsecond
	if len(p.held) == 0 || ttl < p.ttl {
		p.ttl = ttl
	}
	p.held = append(p.held, h)
}

// Start has the permit renewed until it is released.
func (k *Renewal) Start(p *Permit) {
	p.renewal = k
	k.add(p, time.Now(), p.ttl/renewalsPerTTL)
}

// Release gives the permit back. It does so though the context has ended, and does not wait for a store that fails. To
// release it twice, or one that was never started, does nothing.
func (p *Permit) Release(ctx context.Context) {
	if p.renewal == nil {
		return
	}
	p.mu.Lock()
	if !p.released.IsZero() {
		p.mu.Unlock()
		return
	}
	p.released = time.Now()
	p.mu.Unlock()
	if p.renewal.remove(p) { // else it is just being renewed, and given back thereafter
		p.releaseHeld(context.WithoutCancel(ctx))
	}
}

// releaseHeld gives back what is held. What the store does not take is tried again until it has lapsed anyway.
func (p *Permit) releaseHeld(ctx context.Context) {
	ops := make([]group.Op, 0, len(p.held))
	for i := range p.held {
		h := &p.held[i]
		if h.localReceipt != 0 {
			p.renewal.engine.LocalPermit(&h.op, h.localReceipt, -h.op.Request.Cost)
			h.localReceipt = 0
		}
		if h.receipt != noReceipt {
			op := h.op
			op.Request.Cost, op.At = -op.Request.Cost, h.receipt
			ops = append(ops, op)
		}
	}
	if len(ops) == 0 {
		return
	}
	now := time.Now()
	err := p.renewal.engine.ApplyOrFail(ctx, ops, make([]group.Answer, len(ops)))
	if err != nil && now.Sub(p.released) < p.ttl {
		p.renewal.add(p, now, p.ttl/retriesPerTTL)
	}
}
