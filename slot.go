package sluice

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// Slot is what a caller in flight holds of [Concurrency] limits. It renews itself each third of the lease until it is
// released; what a process holds that dies is free when the lease ends. A nil Slot holds nothing, and to release it or
// any other twice does nothing.
//
// A store that fails is tolerated: a renewal and a release are tried again, and a slot that lapsed meanwhile is taken
// anew if there is room. If there is none its holder goes on, and for as long more are in flight than the limit says.
type Slot struct {
	limiter *Limiter
	lease   time.Duration // the shortest of those held

	mu       sync.Mutex // guards the fields below
	held     []heldSlot
	busy     bool      // a renewal is on its way to the store
	released time.Time // zero: not yet

	// Of the keeper.
	queue      *slotQueue
	due        time.Time
	next, last *Slot
}

// heldSlot is a slot of one limit.
type heldSlot struct {
	take Take  // that took it
	at   int64 // its name at the store; nameless if that does not know of it
	here int64 // its name in this process' own count, which goes on while the store cannot answer; 0: none
}

// nameless is a name that no slot has: to renew it takes one.
const nameless = 1

// Acquire spends one on the key under all of the limiter's rules, as Allow does, and holds what is to be held of
// [Concurrency] limits until the slot is released. The slot is nil if the decision is not allowed.
//
//	slot, d, err := limiter.Acquire(ctx, key)
//	if err != nil || !d.Allowed {
//		…
//	}
//	defer slot.Release(ctx)
//
// RetryAfter of a denial is when the first lease ends; there may be room long before, whenever somebody is done.
func (l *Limiter) Acquire(ctx context.Context, key string) (*Slot, Decision, error) {
	if len(l.Rules()) == 0 {
		return nil, Decision{}, fmt.Errorf("%w: this limiter has no rules: use Decide and Hold", ErrInvalid)
	}
	takes, out := make([]Take, len(l.rules)), make([]Decision, len(l.rules))
	for i, rule := range l.rules {
		takes[i] = Take{Rule: rule, Key: key, Cost: 1}
	}
	if l.limitFor != nil {
		takes[0].Limit = l.limitFor(ctx, key)
	}
	allowed, err := l.Decide(ctx, takes, out)
	if err != nil {
		return nil, Decision{}, err
	}
	slot := l.Hold(takes, out)
	if !allowed {
		slot.Release(ctx)
		slot = nil
	}
	return slot, out[Tightest(out)], nil
}

// Hold keeps what takes that [Limiter.Decide] decided were granted of [Concurrency] limits, until it is released. It
// returns nil if that is nothing. The takes' keys are copied.
func (l *Limiter) Hold(takes []Take, out []Decision) *Slot {
	var s *Slot
	for i := range takes {
		t, d := &takes[i], &out[i]
		if t.Effective().Algorithm != Concurrency || d.Granted <= 0 || t.At != 0 || d.Source != SourceStore && d.Source != SourceLocal {
			continue
		}
		if s == nil {
			s = &Slot{limiter: l, lease: t.Effective().Window}
		}
		held := heldSlot{take: *t, at: d.At}
		held.take.Key, held.take.Slot = strings.Clone(t.Key), strings.Clone(t.Slot)
		held.take.Cost, held.take.Min, held.take.MaxDelay, held.take.ID = d.Granted, 0, 0, 0
		held.take.Settles = false // it is renewed and released, which is no settlement
		if d.Source == SourceLocal {
			held.at, held.here = nameless, d.At
		} else if l.guard != nil && t.Rule.OnFailure == FailLocal {
			held.here = l.countHere(&held, 0, d.Granted)
		}
		s.held = append(s.held, held)
		s.lease = min(s.lease, t.Effective().Window)
	}
	if s != nil {
		l.slots.add(s, time.Now(), s.lease/renewals)
	}
	return s
}

// renewals is how often a slot is renewed in a lease.
const renewals = 3

// retries is how often in a lease what the store did not answer is tried again.
const retries = 10

// countHere takes, renews or gives back a slot in this process' own count, and returns its name there.
func (l *Limiter) countHere(h *heldSlot, at, cost int64) int64 {
	op := group.Op{
		Rule: h.take.Rule.id, Key: h.take.Key, Params: l.shareOf(h.take.Effective()).Params(),
		Request: step.Request{Cost: cost}, At: at,
	}
	var answer [1]step.Answer
	l.local.open().Apply(time.Now().UnixMicro(), []group.Op{op}, answer[:])
	if cost < 0 || !answer[0].Allowed {
		return 0
	}
	return answer[0].At
}

// Release gives the slot back. It does so though the context has ended, and does not wait for a store that fails.
func (s *Slot) Release(ctx context.Context) {
	if s == nil {
		return
	}
	s.mu.Lock()
	if !s.released.IsZero() {
		s.mu.Unlock()
		return
	}
	s.released = time.Now()
	s.mu.Unlock()
	if s.limiter.slots.remove(s) { // else it is just being renewed, and given back thereafter
		s.giveBack(context.WithoutCancel(ctx))
	}
}

// giveBack gives back what is held. What the store does not take is tried again until the leases have ended anyway.
func (s *Slot) giveBack(ctx context.Context) {
	takes := make([]Take, 0, len(s.held))
	for i := range s.held {
		h := &s.held[i]
		if h.here != 0 {
			s.limiter.countHere(h, h.here, -h.take.Cost)
			h.here = 0
		}
		if h.at != nameless {
			t := h.take
			t.Cost, t.At = -t.Cost, h.at
			takes = append(takes, t)
		}
	}
	if len(takes) == 0 {
		return
	}
	now := time.Now()
	if err := s.limiter.applyWithin(ctx, takes, make([]Decision, len(takes))); err != nil && now.Sub(s.released) < s.lease {
		s.limiter.slots.add(s, now, s.lease/retries)
	}
}
