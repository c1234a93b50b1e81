package remote

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// patience is the context of a call to a store that has Arrivals. It ends with the caller's, or when a server has not
// replied in time: that the time is up means nothing yet, because all who wait for a processor find that first.
type patience struct {
	context.Context
	end     context.CancelFunc
	store   Arrivals
	began   time.Time
	timeout time.Duration
	up      atomic.Bool // it has ended because the time is up
	own     atomic.Bool // this process was late

	mu    sync.Mutex // guards the fields below
	timer *time.Timer
	looks int
}

// mostPatience is for how many times the timeout a caller waits for its own process.
const mostPatience = 10

// within returns a context for a call to the store that began at a time, and what to call when the call has ended, which
// tells whether this process was late.
func (en *Engine) within(ctx context.Context, began time.Time) (context.Context, func() (own bool)) {
	if en.arrivals == nil {
		within, cancel := context.WithDeadline(ctx, began.Add(en.Timeout))
		return within, func() bool {
			cancel()
			return false
		}
	}
	p := &patience{store: en.arrivals, began: began, timeout: en.Timeout}
	p.Context, p.end = context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(en.Timeout-time.Since(began), p.look)
	return p, p.done
}

// look ends the call if a server is late, and looks again when one could be.
func (p *patience) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Context.Err() != nil {
		return
	}
	p.looks++
	left, own := p.store.Patience(p.timeout)
	if left == 0 || p.looks >= mostPatience && time.Since(p.began) >= mostPatience*p.timeout {
		p.up.Store(true)
		p.end()
		return
	}
	if own {
		p.own.Store(true)
	}
	p.timer.Reset(left)
}

func (p *patience) done() (own bool) {
	p.end()
	p.timer.Stop()
	return p.own.Load()
}

// Deadline is when the call would end if all were in time.
func (p *patience) Deadline() (time.Time, bool) {
	until := p.began.Add(p.timeout)
	if earlier, ok := p.Context.Deadline(); ok && earlier.Before(until) {
		until = earlier
	}
	return until, true
}

func (p *patience) Err() error {
	err := p.Context.Err()
	if err != nil && p.up.Load() {
		return context.DeadlineExceeded
	}
	return err
}
