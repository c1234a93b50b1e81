package redisstore

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
)

// batcher has callers that would wait anyway share one run of the script. A run costs the server several times what a
// decision in it does, so that under load it gets through several times as many.
//
// A call is sent at once while few are in flight, so that nobody waits for company. Only when the server has several to
// work on are further ones gathered, and sent together when one of those has been answered, or soon if none is: a server
// that is far away, or gone, must not cost a caller twice its time. Each stays all or nothing by itself.
type batcher struct {
	run      func(ctx context.Context, c *call) error
	disabled bool // never combine: the calls may be for different servers

	mu         sync.Mutex // guards the fields below
	inFlight   int        // runs in flight
	waiting    []*waiter
	flushTimer *time.Timer // sends those who wait
	closed     bool        // nobody is gathered any more

	running sync.WaitGroup // for runs that no caller makes by itself; added to while mu is held and it is not closed

	idle sync.Pool // of waiters whose caller has its answer
}

const (
	// batchThreshold is how many runs may be in flight before callers are gathered.
	batchThreshold = 4
	// maxBatchDelay is for how long they are gathered: much longer than a round trip to a server nearby, and much shorter than
	// the time a decision has.
	maxBatchDelay = 2 * time.Millisecond
	// maxBatchTakes bounds the takes of a gathered run, during which the server does nothing else.
	maxBatchTakes = 128
	// maxCallTakes is the most takes that a call may have to share a run.
	maxCallTakes = 16
)

// waiter is a call that waits for a run.
type waiter struct {
	call  *call
	ctx   context.Context
	done  chan struct{} // has room for the one message it gets
	taken bool          // by a run; guarded by batcher.mu
	run   *flight       // that has taken it

	err error // once done
}

// flight is a run for several callers. It ends when the last of them has given up.
type flight struct {
	waiters []*waiter
	ctx     context.Context
	end     context.CancelFunc
	callers int // who wait for it; guarded by batcher.mu
}

// apply runs the call, alone or with others.
func (b *batcher) apply(ctx context.Context, c *call) error {
	if b.disabled || len(c.ops) > maxCallTakes {
		return b.run(ctx, c)
	}
	b.mu.Lock()
	if b.inFlight < batchThreshold || b.closed {
		b.inFlight++
		b.mu.Unlock()
		err := b.run(ctx, c)
		b.onRunDone()
		return err
	}
	w := b.waiter(ctx, c)
	if b.waiting = append(b.waiting, w); len(b.waiting) == 1 {
		b.waitLocked()
	}
	b.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
		if err := b.leave(w); err != nil {
			return err
		}
	}
	err := w.err
	*w = waiter{done: w.done}
	b.idle.Put(w)
	return err
}

func (b *batcher) waiter(ctx context.Context, c *call) *waiter {
	w, ok := b.idle.Get().(*waiter)
	if !ok {
		w = &waiter{done: make(chan struct{}, 1)}
	}
	w.call, w.ctx = c, ctx
	return w
}

// leave gives up waiting, unless the answer is there. A call that no run has taken was certainly not charged.
func (b *batcher) leave(w *waiter) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.done:
		return nil
	default:
	}
	if w.taken {
		if w.run.callers--; w.run.callers == 0 {
			w.run.end()
		}
		return fmt.Errorf("redisstore: %w: %w: the takes may have been charged", sluice.ErrUnavailable, w.ctx.Err())
	}
	w.taken = true // and so left out of every run
	return fmt.Errorf("redisstore: %w: %w: the takes were not sent", sluice.ErrUnavailable, w.ctx.Err())
}

// waitLocked has those who wait sent in a moment, if nothing sends them before.
func (b *batcher) waitLocked() {
	if b.closed { // who closes it sends them
		return
	}
	if b.flushTimer == nil {
		b.flushTimer = time.AfterFunc(maxBatchDelay, b.flush)
	} else {
		b.flushTimer.Reset(maxBatchDelay)
	}
}

// flush sends those who have waited for long enough.
func (b *batcher) flush() {
	b.mu.Lock()
	var next *flight
	if !b.closed {
		next = b.takeBatchLocked()
	}
	if next != nil {
		b.inFlight++
		b.running.Add(1)
	}
	b.mu.Unlock()
	if next != nil {
		b.followAlone(next)
	}
}

// onRunDone has those who wait follow a run that has ended.
func (b *batcher) onRunDone() {
	b.mu.Lock()
	next := b.takeBatchLocked()
	alone := next != nil && !b.closed
	switch {
	case alone:
		b.running.Add(1)
	case next == nil:
		b.inFlight--
	}
	b.mu.Unlock()
	switch {
	case alone:
		go b.followAlone(next)
	case next != nil:
		b.runPending(next)
	}
}

// followAlone is follow on a goroutine that is no caller's.
func (b *batcher) followAlone(next *flight) {
	defer b.running.Done()
	b.runPending(next)
}

// close has nobody gathered any more, runs the calls of those who wait, and waits for all runs that no caller makes.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	if b.flushTimer != nil {
		b.flushTimer.Stop()
	}
	next := b.takeBatchLocked()
	if next != nil {
		b.inFlight++
	}
	b.mu.Unlock()
	if next != nil {
		b.runPending(next)
	}
	b.running.Wait()
}

// runPending runs what has gathered until nothing has. Those who have just got their answers go first: what they ask next
// is then gathered with the rest, where else the first of them would have a run to itself.
func (b *batcher) runPending(next *flight) {
	for next != nil {
		b.runTogether(next)
		runtime.Gosched()
		b.mu.Lock()
		if next = b.takeBatchLocked(); next == nil {
			b.inFlight--
		}
		b.mu.Unlock()
	}
}

// takeBatchLocked takes the waiters for one run: in their order, but plain ones by themselves, which are much quicker so.
func (b *batcher) takeBatchLocked() *flight {
	var together []*waiter
	takes, left := 0, b.waiting[:0]
	for _, w := range b.waiting {
		switch {
		case w.taken:
		case len(together) > 0 && (takes+len(w.call.ops) > maxBatchTakes || w.call.allFast != together[0].call.allFast):
			left = append(left, w)
		default:
			w.taken = true
			takes += len(w.call.ops)
			together = append(together, w)
		}
	}
	clear(b.waiting[len(left):])
	if b.waiting = left; len(left) > 0 {
		b.waitLocked()
	}
	if len(together) == 0 {
		return nil
	}
	f := &flight{waiters: together, callers: len(together)}
	f.ctx, f.end = context.WithCancel(context.Background())
	for _, w := range together {
		w.run = f
	}
	return f
}

// runTogether runs the calls as one.
func (b *batcher) runTogether(f *flight) {
	defer f.end()
	all := emptyCall(&idleRuns)
	for _, w := range f.waiters {
		all.join(w.call)
	}
	err := b.run(f.ctx, all)
	answers := all.answers
	for _, w := range f.waiters {
		if w.err = err; err == nil {
			answers = answers[copy(w.call.answers, answers):]
		}
		w.done <- struct{}{}
	}
	if err == nil {
		all.recycle(&idleRuns)
	}
}
