package redisstore

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
)

// batcher combines concurrent calls into one run of the script. A run costs the server several times as much as a
// decision in it, so that under load batching multiplies the number of decisions per second.
//
// While fewer than batchThreshold runs are in flight, a call is sent at once. Further calls wait in a batch, which is
// sent when a run ends, and after maxBatchDelay at the latest: a distant or unavailable server must not double a
// caller's waiting time. Each call in a batch remains all or nothing by itself.
type batcher struct {
	run      func(ctx context.Context, c *call) error
	disabled bool // never combine calls, because they may be for different servers

	mu         sync.Mutex // guards the fields below
	inFlight   int
	waiting    []*waiter
	flushTimer *time.Timer // sends the waiting calls
	closed     bool        // no further calls wait for a batch

	running sync.WaitGroup // runs on goroutines that are no caller's; Add is called with mu held and while not closed

	idle sync.Pool // of *waiter whose caller has the result
}

const (
	// batchThreshold is the number of runs in flight from which on calls are batched.
	batchThreshold = 4
	// maxBatchDelay is how long a call waits for a batch: much longer than a round trip to a nearby server, and much
	// shorter than the store timeout.
	maxBatchDelay = 2 * time.Millisecond
	// maxBatchTakes is the maximum number of takes in a batch; the server does nothing else while the script runs.
	maxBatchTakes = 128
	// maxCallTakes is the maximum number of takes of a call that may be batched.
	maxCallTakes = 16
)

// waiter is a call that waits for a batch.
type waiter struct {
	call  *call
	ctx   context.Context
	done  chan struct{} // buffered for the one message that is sent
	taken bool          // a run includes the call, or the caller has left; guarded by batcher.mu
	run   *flight       // the run that includes it

	err error // set before done
}

// flight is a run for several callers. It is cancelled when the last caller has stopped waiting.
type flight struct {
	waiters []*waiter
	ctx     context.Context
	end     context.CancelFunc
	callers int // that still wait; guarded by batcher.mu
}

// apply runs the call, alone or in a batch.
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

// leave stops waiting, unless the result is already there. A call that no run includes was certainly not charged.
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
	w.taken = true // so that no run includes it
	return fmt.Errorf("redisstore: %w: %w: the takes were not sent", sluice.ErrUnavailable, w.ctx.Err())
}

// waitLocked starts the timer that sends the waiting calls after maxBatchDelay.
func (b *batcher) waitLocked() {
	if b.closed { // close sends them
		return
	}
	if b.flushTimer == nil {
		b.flushTimer = time.AfterFunc(maxBatchDelay, b.flush)
	} else {
		b.flushTimer.Reset(maxBatchDelay)
	}
}

// flush sends the calls that have waited for maxBatchDelay.
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

// onRunDone starts the next batch. Waiting callers would otherwise wait until maxBatchDelay.
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

// followAlone is runPending on a goroutine that is no caller's.
func (b *batcher) followAlone(next *flight) {
	defer b.running.Done()
	b.runPending(next)
}

// close stops batching, runs the waiting calls, and waits for the runs that are on no caller's goroutine.
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

// runPending runs batches until no call waits. Between two batches it yields to the callers that have just received
// their results, so that their next calls join the batch. Otherwise the first of them would get a run to itself.
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

// takeBatchLocked removes the waiters of one run, in their order. Fast calls are not mixed with others, because a run
// of fast calls alone is much faster.
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

// runTogether runs the calls of a batch in one run of the script.
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
