// Package shaper delays callers in queues: first in, first out, one queue for each rule and key.
//
// A queue orders its waiters, and bounds its backlog. Whether the first may be released is decided elsewhere, such as by a
// store that others share: the first asks, and is postponed until it may ask again. Nothing is asked for those
// behind it, so that a cancelled waiter leaves no trace, and those behind move up.
//
//	enqueue → wait until first, and its time has come → ask → release, or postponed → wait …
//	  ↓                    ↓                                          ↓
//	  no room           cancelled, or late                             late
//
// Releases are stamped by this process's clock, which does not go back, and the next may not come before the
// stamp's interval is over. To wait for a moment that was fixed when the caller came would not do that: clocks wake
// sleepers late, some more and some less, and what is late on one side is missing on the other.
//
// The package has no goroutine: only callers act. An empty queue is removed, after its last
// release's interval, when others are made.
package shaper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// Shape is how waiters are released.
type Shape struct {
	// Interval is the time that a waiter of cost 1 takes.
	Interval time.Duration
	// MaxBacklog bounds the time that all waiters take together, with the rest of the last
	// released one's. 0 means that only the waiters' maxWait bounds it.
	MaxBacklog time.Duration
	// Paced keeps releases apart by the time that they take.
	Paced bool
}

// ID identifies a queue: that of a rule for a key.
type ID struct{ Rule, Key string }

// Queues are lines by name. The zero Lines has none.
type Queues struct {
	mu             sync.Mutex // guards all below, and all that is in queues
	queues         map[ID]*queue
	oldest, newest *Waiter // of all queues, linked by earlier and later
}

// used are the Lines of this process in which a request has waited.
var used struct {
	mu  sync.Mutex // guards all
	all []weak.Pointer[Queues]
}

// Oldest returns how long the oldest waiter of all queues of this process has waited, or 0 if there is none.
func Oldest() time.Duration {
	used.mu.Lock()
	used.all = slices.DeleteFunc(used.all, func(p weak.Pointer[Queues]) bool { return p.Value() == nil })
	all := slices.Clone(used.all)
	used.mu.Unlock() // because new Queues lock the other way round
	var age time.Duration
	for _, p := range all {
		if qs := p.Value(); qs != nil {
			age = max(age, qs.age())
		}
	}
	return age
}

func (qs *Queues) age() time.Duration {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.oldest == nil {
		return 0
	}
	return time.Since(qs.oldest.EnqueuedAt)
}

type queue struct {
	first, last *Waiter
	backlog     time.Duration // the time that all waiters take
	nextPaced   time.Time     // when the last release's time is over
	retryAt     time.Time     // when the first may ask again; zero when the queue is empty
}

// nextRelease is when the first may be released.
func (q *queue) nextRelease() time.Time {
	if q.retryAt.After(q.nextPaced) {
		return q.retryAt
	}
	return q.nextPaced
}

// Waiter is a caller in a queue. It is for one goroutine, and may be used again after it was released or cancelled.
type Waiter struct {
	EnqueuedAt  time.Time     // in the order of the queue
	RetryAfter  time.Duration // set with ErrDeadlineTooSoon: when it may be worth to come again
	SkipSpacing bool          // to be set if the next may follow at once although the queue is paced

	queues    *Queues
	queue     *queue
	shape     Shape
	duration  time.Duration // that it takes: cost × interval
	maxWait   time.Duration // of the caller
	deadline  time.Time     // when it stops waiting
	previous  *Waiter
	next      *Waiter
	earlier   *Waiter // in all queues
	later     *Waiter
	ready     chan struct{} // closed when it is first
	isFirst   bool          // as far as the caller knows
	postponed bool
}

// ErrDeadlineTooSoon is returned when a waiter could only be released too late for its caller.
var ErrDeadlineTooSoon = errors.New("shaper: the turn would come too late")

// Enqueue adds a waiter to the end of a queue. If the backlog is too long, or its turn would come later than maxWait,
// it returns false, and the caller may try again after a time.
func (qs *Queues) Enqueue(w *Waiter, id ID, shape Shape, cost int64, maxWait time.Duration) (time.Duration, bool) {
	duration := time.Duration(cost) * shape.Interval
	qs.mu.Lock()
	defer qs.mu.Unlock()
	now := time.Now()
	q := qs.queues[id]
	if q == nil {
		q = qs.add(id, now)
	} else if late := q.excess(now, &shape, duration, maxWait); late > 0 {
		return late, false
	}
	maxWait = min(maxWait, maxDelay)
	*w = Waiter{EnqueuedAt: now, queues: qs, queue: q, shape: shape, duration: duration, maxWait: maxWait, previous: q.last, earlier: qs.newest}
	if w.earlier == nil {
		qs.oldest = w
	} else {
		w.earlier.later = w
	}
	qs.newest = w
	w.deadline = now.Add(2*maxWait + shape.Interval) // a machine that is busy wakes everybody late, which is no reason to refuse them
	q.backlog += duration
	q.last = w
	if w.previous == nil {
		q.first, w.isFirst = w, true
	} else {
		w.previous.next = w
		w.ready = make(chan struct{})
	}
	return 0, true
}

// excess is how much too long the queue is for another waiter.
func (q *queue) excess(now time.Time, shape *Shape, duration, maxWait time.Duration) time.Duration {
	full := max(0, q.nextRelease().Sub(now)) + q.backlog
	wait := full
	if q.first != nil && !shape.Paced { // the first has what it takes once it may be released; this one not yet
		wait += duration - q.first.duration
	}
	if shape.MaxBacklog > 0 {
		return max(wait-maxWait, full+duration-shape.MaxBacklog)
	}
	return wait - maxWait
}

// maxDelay bounds how long any caller waits, so that times can be added.
const maxDelay = 366 * 24 * time.Hour

// CanRelease reports whether the waiter is first and may be released now.
func (w *Waiter) CanRelease() bool {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	return w.queue.first == w && !w.queue.nextRelease().After(time.Now())
}

// Wait returns when the waiter is first and may be released, as far as is known here. It returns the context's error if that
// ends before, and ErrDeadlineTooSoon if the caller has waited for twice its maxWait. Then the waiter is cancelled.
func (w *Waiter) Wait(ctx context.Context) error {
	late := time.NewTimer(time.Until(w.deadline))
	defer late.Stop()
	if !w.isFirst {
		select {
		case <-w.ready:
			w.isFirst = true
		case <-ctx.Done():
			w.Cancel()
			return ctx.Err()
		case <-late.C:
			return w.tooLate()
		}
	}
	for {
		w.queues.mu.Lock()
		wait := time.Until(w.queue.nextRelease())
		w.queues.mu.Unlock()
		if err := ctx.Err(); err != nil {
			w.Cancel()
			return err
		}
		if wait <= 0 {
			return nil
		}
		turn := time.NewTimer(wait)
		select {
		case <-turn.C:
		case <-ctx.Done(): // seen above
		case <-late.C:
			turn.Stop()
			return w.tooLate()
		}
		turn.Stop()
	}
}

// Postpone records that the first may not be released for so long. It returns ErrDeadlineTooSoon if that is too long for the caller; then
// the waiter is cancelled.
func (w *Waiter) Postpone(d time.Duration) error {
	now := time.Now()
	retryAt := now.Add(min(d, maxDelay))
	w.queues.mu.Lock()
	w.queue.retryAt = retryAt
	w.queues.mu.Unlock()
	deadline := w.deadline
	if w.ready == nil && !w.postponed { // nothing has been waited for yet that would be lost
		deadline = now.Add(w.maxWait)
	}
	w.postponed = true
	if retryAt.After(deadline) {
		return w.tooLate()
	}
	return nil
}

// tooLate cancels, and sets when it may be worth to come again: when the queue is so much shorter.
func (w *Waiter) tooLate() error {
	w.queues.mu.Lock()
	wait := max(0, time.Until(w.queue.nextRelease()))
	if w.queue.first != w {
		wait += w.queue.backlog - w.duration
	}
	w.RetryAfter = max(w.shape.Interval, wait-w.maxWait)
	w.queues.mu.Unlock()
	w.Cancel()
	return ErrDeadlineTooSoon
}

// Backlog is the time that the waiters behind the first take.
func (w *Waiter) Backlog() time.Duration {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	return w.queue.backlog - w.duration
}

// Release removes the first waiter from its queue, and returns when.
func (w *Waiter) Release() time.Time {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	released := time.Now()
	if w.shape.Paced && !w.SkipSpacing {
		w.queue.nextPaced = released.Add(w.duration)
	}
	w.removeLocked()
	return released
}

// Cancel removes the waiter. Those behind it move up. A second call does nothing.
func (w *Waiter) Cancel() {
	if w.queues == nil {
		return
	}
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.removeLocked()
}

func (w *Waiter) removeLocked() {
	q := w.queue
	if q == nil {
		return
	}
	w.queue = nil
	q.backlog -= w.duration
	if w.previous == nil {
		q.first = w.next
	} else {
		w.previous.next = w.next
	}
	if w.next == nil {
		q.last = w.previous
	} else {
		w.next.previous = w.previous
	}
	if w.earlier == nil {
		w.queues.oldest = w.later
	} else {
		w.earlier.later = w.later
	}
	if w.later == nil {
		w.queues.newest = w.earlier
	} else {
		w.later.earlier = w.earlier
	}
	if w.previous == nil && q.first != nil {
		close(q.first.ready)
	}
	if q.first == nil {
		q.retryAt = time.Time{}
	}
}

// maxIdle bounds how many empty queues are kept. What they remember is worth little: that the last
// release is not yet an interval ago, which the store knows as well, but for how long its replies take.
const maxIdle = 1 << 16

func (qs *Queues) add(id ID, now time.Time) *queue {
	qs.prune(now)
	if qs.queues == nil {
		qs.queues = make(map[ID]*queue)
		used.mu.Lock()
		used.all = append(used.all, weak.Make(qs))
		used.mu.Unlock()
	}
	id.Key = strings.Clone(id.Key)
	made := &queue{}
	qs.queues[id] = made
	return made
}

// prune looks at a few queues and removes empty ones whose interval is over. As it is done for every
// queue that is made, those that are removed late are never many.
func (qs *Queues) prune(now time.Time) {
	const few = 4
	looked := 0
	for id, q := range qs.queues {
		if q.first == nil && (!q.nextPaced.After(now) || len(qs.queues) > maxIdle) {
			delete(qs.queues, id)
			if q.nextPaced.After(now) {
				bounds.DelayLines.Reached()
			}
		}
		if looked++; looked == few {
			return
		}
	}
}

// Len is the number of queues.
func (qs *Queues) Len() int {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return len(qs.queues)
}
