package remote

import (
	"sync"
	"sync/atomic"
	"time"
)

// work runs the background work of an engine; close stops it and waits for it.
type work struct {
	mu      sync.Mutex // guards timers, and closed, so that nothing starts after close
	closed  atomic.Bool
	closing chan struct{}
	running sync.WaitGroup
	timers  map[*time.Timer]bool // guarded by mu
}

// start runs f on a new goroutine and reports whether it did. It does not after close.
func (w *work) start(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed.Load() {
		return false
	}
	w.running.Go(f)
	return true
}

// after runs f after d, unless w is closed by then.
func (w *work) after(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed.Load() {
		return
	}
	if w.timers == nil {
		w.timers = make(map[*time.Timer]bool)
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		w.mu.Lock()
		delete(w.timers, timer)
		open := !w.closed.Load()
		if open {
			w.running.Add(1)
		}
		w.mu.Unlock()
		if open {
			defer w.running.Done()
			f()
		}
	})
	w.timers[timer] = true
}

// sleep waits for d and reports whether w was not closed in the meantime.
func (w *work) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.closing:
		return false
	}
}

// close stops timers and sleeps, prevents further work from starting, and waits for running work.
func (w *work) close() {
	w.mu.Lock()
	if w.closed.CompareAndSwap(false, true) {
		close(w.closing)
	}
	for timer := range w.timers {
		timer.Stop()
	}
	w.mu.Unlock()
	w.running.Wait()
}
