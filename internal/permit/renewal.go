// Package permit renews permits of concurrency limits until they are released.
package permit

import (
	"context"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
)

// Engine applies the ops of permits.
type Engine interface {
	// ApplyOrFail applies ops of one shard, without fail modes.
	ApplyOrFail(ctx context.Context, ops []group.Op, out []group.Answer) error
	// Shard returns the index of the shard that stores the op's key.
	Shard(op *group.Op) int
	// LocalPermit acquires, renews or releases a permit in this instance's local count. It returns the local receipt,
	// or 0.
	LocalPermit(op *group.Op, receipt, cost int64) int64
}

// Renewal renews permits, with one timer for all of them. Permits with the same renewal interval are in one queue, so
// that the first of each queue is due first. A permit that is released before its first renewal, the usual case, costs
// only linking and unlinking.
type Renewal struct {
	engine Engine
	remote bool // the store is remote, and permits are also counted locally for local fallback

	mu      sync.Mutex                      // guards the fields below and the permits' links
	queues  map[time.Duration]*renewalQueue // by renewal interval
	timer   *time.Timer
	timerAt time.Time // when the timer fires; zero if it is stopped
	closed  bool
	running sync.WaitGroup // of run
}

// renewalQueue is a list of permits in the order in which they are due.
type renewalQueue struct{ first, last *Permit }

// Init sets the engine, and whether its store is remote.
func (k *Renewal) Init(engine Engine, remote bool) { k.engine, k.remote = engine, remote }

// Close stops renewals and waits for those in progress. Permits then expire unless they are released.
func (k *Renewal) Close() {
	k.mu.Lock()
	k.closed = true
	if k.timer != nil {
		k.timer.Stop()
	}
	k.mu.Unlock()
	k.running.Wait()
}

// add schedules the renewal of the permit after a time.
func (k *Renewal) add(s *Permit, now time.Time, after time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	q := k.queues[after]
	if q == nil {
		if k.queues == nil {
			k.queues = make(map[time.Duration]*renewalQueue)
		}
		q = &renewalQueue{}
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

// wake sets the timer to a time, unless it is set to an earlier one.
func (k *Renewal) wake(now, at time.Time) {
	if k.closed || !k.timerAt.IsZero() && !at.Before(k.timerAt) {
		return
	}
	k.timerAt = at
	if k.timer == nil {
		k.timer = time.AfterFunc(at.Sub(now), k.run)
	} else {
		k.timer.Reset(at.Sub(now))
	}
}

// remove removes the permit from its queue and reports whether it was in one.
func (k *Renewal) remove(s *Permit) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.unlink(s)
}

func (k *Renewal) unlink(s *Permit) bool {
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

// renewalBatch is the maximum number of permits per call.
const renewalBatch = 64

// take removes the due permits from their queues, or sets the timer if there are none.
func (k *Renewal) take(now time.Time) (due []*Permit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var next time.Time
	for after, q := range k.queues {
		for q.first != nil && !q.first.due.After(now) && len(due) < renewalBatch {
			due = append(due, q.first)
			k.unlink(q.first)
		}
		switch {
		case q.first == nil && len(k.queues) > 8: // queues of limits that are no longer used
			delete(k.queues, after)
		case q.first != nil && (next.IsZero() || q.first.due.Before(next)):
			next = q.first.due
		}
	}
	if k.timerAt = (time.Time{}); len(due) == 0 && !next.IsZero() {
		k.wake(now, next)
	}
	return due
}

// run renews the due permits. While it runs the timer may be set again, and a second run renews other permits.
func (k *Renewal) run() {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	k.running.Add(1)
	k.mu.Unlock()
	defer k.running.Done()
	for {
		due := k.take(time.Now())
		if len(due) == 0 {
			return
		}
		k.renewAll(due)
	}
}

// renewAll renews permits, with one call per shard.
func (k *Renewal) renewAll(due []*Permit) {
	parts := make(map[int]*renewal)
	for _, s := range due {
		s.mu.Lock()
		gone := !s.released.IsZero()
		s.busy = !gone
		s.mu.Unlock()
		if gone { // its release failed before, or is in progress
			s.releaseHeld(context.Background())
			continue
		}
		for i := range s.held {
			shard := k.engine.Shard(&s.held[i].op)
			p := parts[shard]
			if p == nil {
				p = &renewal{failed: make(map[*Permit]bool)}
				parts[shard] = p
			}
			p.add(s, i)
		}
	}
	failed := make(map[*Permit]bool)
	for _, p := range parts {
		p.renew(k)
		for s := range p.failed {
			failed[s] = true
		}
	}
	for _, s := range due {
		s.done(failed[s])
	}
}

// done puts a renewed permit back into its queue, unless it was released in the meantime.
func (s *Permit) done(failed bool) {
	s.mu.Lock()
	busy := s.busy
	s.busy = false
	gone := !s.released.IsZero()
	if busy && !gone {
		every := s.ttl / renewalsPerTTL
		if failed {
			every = s.ttl / retriesPerTTL
		}
		s.renewal.add(s, time.Now(), every)
	}
	s.mu.Unlock()
	if busy && gone {
		s.releaseHeld(context.Background())
	}
}

// renewal is the content of one call.
type renewal struct {
	ops     []group.Op
	of      []*heldPermit
	permits []*Permit
	failed  map[*Permit]bool
}

func (r *renewal) add(s *Permit, i int) {
	op := s.held[i].op
	op.At = s.held[i].receipt
	r.ops, r.of, r.permits = append(r.ops, op), append(r.of, &s.held[i]), append(r.permits, s)
}

// renew renews the permits at the store and in the local count. A permit that was lost is acquired again; if that is
// denied, it is tried again at the next renewal.
func (r *renewal) renew(k *Renewal) {
	out := make([]group.Answer, len(r.ops))
	err := k.engine.ApplyOrFail(context.Background(), r.ops, out)
	for i, h := range r.of {
		switch {
		case err != nil: // it may have been renewed, and then expires under an unknown receipt
			r.failed[r.permits[i]] = true
		case out[i].Allowed:
			h.receipt = out[i].At
		default:
			h.receipt = noReceipt
		}
		if h.localReceipt != 0 || k.countsLocally(&h.op) {
			h.localReceipt = k.engine.LocalPermit(&h.op, max(h.localReceipt, noReceipt), h.op.Request.Cost)
		}
	}
}
