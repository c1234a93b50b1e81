// Package shaper implements delay queues: first in, first out, one queue per rule and key.
//
// A queue orders its waiters and bounds its backlog. The caller decides whether the first waiter may be released, for
// example by calling a store that other instances share, and otherwise postpones it. No call is made for the waiters behind
// it, so that a cancelled waiter needs no refund and the others move up.
//
//	Enqueue → Wait until first and nextRelease → decide → Release, or Postpone → Wait …
//	  ↓                    ↓                                          ↓
//	  backlog too long  cancelled, or too late                      too late
//
// The time of a release is taken from the local monotonic clock, and the next release of a paced queue is at least an
// interval later. A release time that is fixed on arrival would not guarantee this: timers fire late by varying amounts, so
// that the interval after a late release would be too short.
//
// The package starts no goroutines. Empty queues are removed after the interval of their last release, when new queues are
// created.
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

// Shape configures how waiters are released.
type Shape struct {
	// Interval is the duration of a waiter of cost 1. The duration of a waiter is cost × Interval.
	Interval time.Duration
	// MaxBacklog bounds the total duration of all waiters plus the remaining time until the next release. 0 means that only
	// the waiters' maxWait bounds it.
	MaxBacklog time.Duration
	// Paced releases a waiter only after the duration of the previous one.
	Paced bool
	// Burst bounds the total duration of waiters that may be released at once if the queue is not paced.
	Burst time.Duration
}

// ID identifies the queue of a rule and key.
type ID struct{ Rule, Key string }

// Queues holds queues by ID. The zero Queues is empty and ready to use. It is safe for concurrent use.
type Queues struct {
	mu             sync.Mutex // guards the fields below and all queues and waiters
	queues         map[ID]*queue
	oldest, newest *Waiter // of all queues, linked by earlier and later
}

// used lists all Queues of this process that have had a waiter.
var used struct {
	mu  sync.Mutex // guards all
	all []weak.Pointer[Queues]
}

// Oldest returns how long the oldest waiter of all queues of this process has waited, or 0 if there is none.
func Oldest() time.Duration {
	used.mu.Lock()
	used.all = slices.DeleteFunc(used.all, func(p weak.Pointer[Queues]) bool { return p.Value() == nil })
	all := slices.Clone(used.all)
	used.mu.Unlock() // before locking Queues, because add locks in the opposite order
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
	backlog     time.Duration // total duration of all waiters
	nextPaced   time.Time     // earliest next release of a paced queue
	retryAt     time.Time     // end of the last Postpone; zero if the queue is empty
}

// nextRelease returns the earliest time at which the first waiter may be released.
func (q *queue) nextRelease() time.Time {
	if q.retryAt.After(q.nextPaced) {
		return q.retryAt
	}
	return q.nextPaced
}

// Waiter is a caller in a queue. It must be used by one goroutine at a time, and may be reused after Release or Cancel.
type Waiter struct {
	EnqueuedAt  time.Time     // time of Enqueue, increasing within a queue
	RetryAfter  time.Duration // set with ErrDeadlineTooSoon: the time after which a new attempt may succeed
	SkipSpacing bool          // set by the caller before Release if the next waiter may follow at once although the queue is paced

	queues   *Queues
	queue    *queue
	shape    Shape
	duration time.Duration // cost × interval
	maxWait  time.Duration
	deadline time.Time // when Wait gives up
	previous *Waiter
	next     *Waiter
	earlier  *Waiter // in all queues
	later    *Waiter
	ready    chan struct{} // closed when the waiter becomes first
	isFirst  bool          // Wait has seen that the waiter is first
	judged   bool          // its delay was compared with maxWait
}

// ErrDeadlineTooSoon is returned if a waiter cannot be released within its maximum wait.
var ErrDeadlineTooSoon = errors.New("shaper: maximum wait exceeded")

// Enqueue adds a waiter to the end of a queue. If the backlog is too long, or the waiter would wait longer than maxWait, it
// returns false and the time after which a new attempt may succeed. If the delay is unknown because the first waiter is being
// decided, the next Postpone compares it with maxWait.
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
	w.deadline = now.Add(2*maxWait + shape.Interval) // with a margin, because timers fire late on a busy machine
	q.backlog += duration
	q.last = w
	if w.previous == nil {
		q.first, w.isFirst = w, true
	} else {
		w.previous.next = w
		w.ready = make(chan struct{})
		w.judged = q.isDelayKnown(now, &shape)
	}
	return 0, true
}

// excess returns the time by which the queue is too long for another waiter; it is not positive if the waiter fits.
func (q *queue) excess(now time.Time, shape *Shape, duration, maxWait time.Duration) time.Duration {
	full := max(0, q.nextRelease().Sub(now)) + q.backlog
	wait := full
	switch {
	case q.first == nil || shape.Paced:
	case q.isDelayKnown(now, shape): // retryAt covers the duration of the first waiter, but not that of this one
		wait += duration - q.first.duration
	default:
		wait += duration - shape.Burst // the shortest possible delay
	}
	if shape.MaxBacklog > 0 {
		return max(wait-maxWait, full+duration-shape.MaxBacklog)
	}
	return wait - maxWait
}

// isDelayKnown reports whether the delay of a new waiter can be computed. The one behind a first waiter that is being decided
// cannot, unless the queue is paced: the bucket may grant several waiters at once.
func (q *queue) isDelayKnown(now time.Time, shape *Shape) bool {
	return shape.Paced || q.retryAt.After(now)
}

// maxDelay bounds every wait, so that adding durations does not overflow.
const maxDelay = 366 * 24 * time.Hour

// CanRelease reports whether the waiter is first and may be released now.
func (w *Waiter) CanRelease() bool {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	return w.queue != nil && w.queue.first == w && !w.queue.nextRelease().After(time.Now())
}

// Wait blocks until the waiter is first and nextRelease has passed. It returns the context's error if ctx is done before,
// and ErrDeadlineTooSoon after twice maxWait plus an interval. After an error the waiter is cancelled.
func (w *Waiter) Wait(ctx context.Context) error {
	late := time.NewTimer(time.Until(w.deadline))
	defer late.Stop()
	if !w.isFirst {
		select {
		case <-w.ready:
			if w.isRemoved() {
				return ErrDeadlineTooSoon
			}
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
		case <-ctx.Done(): // handled above in the next iteration
		case <-late.C:
			turn.Stop()
			return w.tooLate()
		}
		turn.Stop()
	}
}

// isRemoved reports whether another waiter's Postpone has removed w.
func (w *Waiter) isRemoved() bool {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	return w.queue == nil
}

// Postpone records that the first waiter may not be released before d has passed. If that exceeds the maximum wait, it
// cancels the waiter and returns ErrDeadlineTooSoon. The delays of waiters behind it that were unknown until now are compared
// with their maximum as well.
func (w *Waiter) Postpone(d time.Duration) error {
	now := time.Now()
	d = min(d, maxDelay)
	maxWait := w.maxWait // no margin is needed if it has not waited yet
	if w.judged {
		maxWait = w.deadline.Sub(now)
	}
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	q := w.queue
	q.retryAt, w.judged = now.Add(d), true
	if d <= maxWait {
		q.judge(d + q.backlog - w.duration)
		return nil
	}
	w.RetryAfter = max(w.shape.Interval, d-w.maxWait)
	q.judge(d + q.backlog - 2*w.duration)
	w.removeLocked()
	if q.first != nil {
		q.retryAt = now.Add(d + q.first.duration - w.duration)
	}
	return ErrDeadlineTooSoon
}

// judge removes the waiters at the end of the queue whose delay was unknown and exceeds their maximum. The delay of the last
// one is given. The time in which delays were unknown does not count.
func (q *queue) judge(delay time.Duration) {
	w := q.last
	for ; !w.judged; w = w.previous {
		delay -= w.duration
	}
	for w = w.next; w != nil; w = w.next {
		w.judged = true
		if late := delay + w.duration - w.maxWait; late > 0 {
			w.RetryAfter = late
			w.removeLocked()
			close(w.ready)
			continue
		}
		delay += w.duration
	}
}

// tooLate cancels the waiter and sets RetryAfter to the time until the queue is short enough.
func (w *Waiter) tooLate() error {
	w.queues.mu.Lock()
	if w.queue == nil { // removed by judge, which has set RetryAfter
		w.queues.mu.Unlock()
		return ErrDeadlineTooSoon
	}
	wait := max(0, time.Until(w.queue.nextRelease()))
	if w.queue.first != w {
		wait += w.queue.backlog - w.duration
	}
	w.RetryAfter = max(w.shape.Interval, wait-w.maxWait)
	w.queues.mu.Unlock()
	w.Cancel()
	return ErrDeadlineTooSoon
}

// Backlog returns the total duration of the waiters behind the first one, which w must be.
func (w *Waiter) Backlog() time.Duration {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	return w.queue.backlog - w.duration
}

// Release removes the first waiter from its queue and returns the time of the release.
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

// Cancel removes the waiter, and the waiters behind it move up. A second call does nothing.
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

// maxIdle is the number of queues from which empty ones are removed at once. Little is lost with them: the time of the last
// release within an interval, which the store also enforces, apart from the variation of its latency.
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

// prune checks a few queues and removes empty ones whose interval is over. It runs for every new queue, so that few empty
// queues remain.
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

// Len returns the number of queues.
func (qs *Queues) Len() int {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return len(qs.queues)
}
