package sluice

import (
	"context"
	"sync"
	"time"
)

// keeper renews slots, with one timer for all of them. Slots that are renewed equally often wait in one queue, so that
// the first of each is due first, and those that are released before, which most are, cost nothing but to be linked and
// unlinked.
type keeper struct {
	mu     sync.Mutex                   // guards the fields below and the slots' links
	queues map[time.Duration]*slotQueue // by how often
	timer  *time.Timer
	wakes  time.Time // when the timer fires; zero: it is not running
}

// slotQueue is a list of slots in the order in which they are due.
type slotQueue struct{ first, last *Slot }

// add has the slot renewed so much later.
func (k *keeper) add(s *Slot, now time.Time, after time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	q := k.queues[after]
	if q == nil {
		if k.queues == nil {
			k.queues = make(map[time.Duration]*slotQueue)
		}
		q = &slotQueue{}
		k.queues[after] = q
	}
	s.due, s.queue, s.last, s.next = now.Add(after), q, q.last, nil
	if q.last != nil {
		q.last.next = s
	} else {
		q.first = s
	}
	q.last = s
	k.wake(now, s.due)
}

// wake has the timer fire at a time, or sooner if it is set so.
func (k *keeper) wake(now, at time.Time) {
	if !k.wakes.IsZero() && !at.Before(k.wakes) {
		return
	}
	k.wakes = at
	if k.timer == nil {
		k.timer = time.AfterFunc(at.Sub(now), k.run)
	} else {
		k.timer.Reset(at.Sub(now))
	}
}

// remove takes the slot out of its queue, and tells whether it was in one.
func (k *keeper) remove(s *Slot) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.unlink(s)
}

func (k *keeper) unlink(s *Slot) bool {
	q := s.queue
	if q == nil {
		return false
	}
	if s.last != nil {
		s.last.next = s.next
	} else {
		q.first = s.next
	}
	if s.next != nil {
		s.next.last = s.last
	} else {
		q.last = s.last
	}
	s.queue, s.last, s.next = nil, nil, nil
	return true
}

// renewedAtOnce is how many slots are renewed in one call.
const renewedAtOnce = 64

// take takes the slots that are due out of their queues, or sets the timer if none is.
func (k *keeper) take(now time.Time) (due []*Slot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var next time.Time
	for after, q := range k.queues {
		for q.first != nil && !q.first.due.After(now) && len(due) < renewedAtOnce {
			due = append(due, q.first)
			k.unlink(q.first)
		}
		switch {
		case q.first == nil && len(k.queues) > 8: // limits come and go
			delete(k.queues, after)
		case q.first != nil && (next.IsZero() || q.first.due.Before(next)):
			next = q.first.due
		}
	}
	if k.wakes = (time.Time{}); len(due) == 0 && !next.IsZero() {
		k.wake(now, next)
	}
	return due
}

// run renews what is due. While it runs the timer may be set by others, and a second run renews other slots.
func (k *keeper) run() {
	for {
		due := k.take(time.Now())
		if len(due) == 0 {
			return
		}
		renewAll(due)
	}
}

// renewAll renews slots, those of each server in one call.
func renewAll(due []*Slot) {
	l := due[0].limiter
	parts := make(map[int]*renewal)
	for _, s := range due {
		s.mu.Lock()
		gone := !s.released.IsZero()
		s.busy = !gone
		s.mu.Unlock()
		if gone { // what the store did not take back before, or is just being released
			s.giveBack(context.Background())
			continue
		}
		for i := range s.held {
			server := 0
			if l.guard != nil {
				server = l.guard.store.Server(&s.held[i].take)
			}
			p := parts[server]
			if p == nil {
				p = &renewal{failed: make(map[*Slot]bool)}
				parts[server] = p
			}
			p.add(s, i)
		}
	}
	failed := make(map[*Slot]bool)
	for _, p := range parts {
		p.renew(l)
		for s := range p.failed {
			failed[s] = true
		}
	}
	for _, s := range due {
		s.done(failed[s])
	}
}

// done puts a slot that was renewed back in its queue, unless it was released meanwhile.
func (s *Slot) done(failed bool) {
	s.mu.Lock()
	busy := s.busy
	s.busy = false
	gone := !s.released.IsZero()
	if busy && !gone {
		every := s.lease / renewals
		if failed {
			every = s.lease / retries
		}
		s.limiter.slots.add(s, time.Now(), every)
	}
	s.mu.Unlock()
	if busy && gone {
		s.giveBack(context.Background())
	}
}

// renewal is what is renewed in one call.
type renewal struct {
	takes  []Take
	of     []*heldSlot
	slots  []*Slot
	failed map[*Slot]bool
}

func (r *renewal) add(s *Slot, i int) {
	t := s.held[i].take
	t.At = s.held[i].at
	r.takes, r.of, r.slots = append(r.takes, t), append(r.of, &s.held[i]), append(r.slots, s)
}

// renew renews the slots at the store and in this process' own count. One that is lost there is taken anew; one that
// cannot be is asked for again when it would be renewed.
func (r *renewal) renew(l *Limiter) {
	out := make([]Decision, len(r.takes))
	err := l.applyWithin(context.Background(), r.takes, out)
	for i, h := range r.of {
		switch {
		case err != nil: // it may have been renewed, and then lapses under a name that nobody knows
			r.failed[r.slots[i]] = true
		case out[i].Allowed:
			h.at = out[i].At
		default:
			h.at = nameless
		}
		if h.here != 0 || l.guard != nil && h.take.Rule.OnFailure == FailLocal {
			h.here = l.countHere(h, max(h.here, nameless), h.take.Cost)
		}
	}
}
