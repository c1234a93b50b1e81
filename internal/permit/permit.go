package permit

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// Permit is a permit of one or more limits, held by one request.
type Permit struct {
	renewal *Renewal
	ttl     time.Duration // the minimum of the held permits

	mu       sync.Mutex // guards the fields below
	held     []heldPermit
	busy     bool      // a renewal is in progress
	released time.Time // zero until then

	// Used by Renewal.
	queue      *renewalQueue
	due        time.Time
	next, last *Permit
}

// heldPermit is a permit of one limit.
type heldPermit struct {
	op           group.Op // that acquired it
	receipt      int64    // at the store; noReceipt if the store does not have it
	localReceipt int64    // in the local count, which local fallback uses; 0 if none
}

// noReceipt is a receipt that no permit has: renewing it acquires a permit.
const noReceipt = 1

// renewalsPerTTL is the number of renewals within one TTL.
const renewalsPerTTL = 3

// retriesPerTTL is the number of retries within one TTL for calls that the store did not reply to.
const retriesPerTTL = 10

// countsLocally reports whether permits of the op's rule are also counted locally.
func (k *Renewal) countsLocally(op *group.Op) bool {
	return k.remote && op.By.OnFailure == group.FailLocal
}

// Holds reports whether the decision about the op granted a permit.
func Holds(op *group.Op, a *group.Answer) bool {
	return op.Params.Kind == step.Permits && a.Granted > 0 && op.At == 0 &&
		(a.Source == group.SourceStore || a.Source == group.SourceFailLocal)
}

// Add adds the permit that the op was granted to p. The op's strings are copied.
func (k *Renewal) Add(p *Permit, op group.Op, a *group.Answer) {
	op.Key, op.HashTag = strings.Clone(op.Key), strings.Clone(op.HashTag)
	op.ID = 0
	op.Request = step.Request{Cost: a.Granted, Charge: op.Request.Charge} // for renewals and the release, which are no settlements
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

// Start starts renewing the permit until it is released.
func (k *Renewal) Start(p *Permit) {
	p.renewal = k
	k.add(p, time.Now(), p.ttl/renewalsPerTTL)
}

// Release releases the permit. It works even if ctx is done, and does not wait for an unavailable store. Releasing it
// twice, or releasing one that was never started, does nothing.
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
	if p.renewal.remove(p) { // otherwise a renewal is in progress, which releases it afterwards
		p.releaseHeld(context.WithoutCancel(ctx))
	}
}

// releaseHeld releases the held permits. Failed releases are retried until the permits have expired.
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
