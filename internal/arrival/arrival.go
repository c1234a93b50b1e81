// Package arrival tells a server that is late from a process that is.
//
// When all processors are busy a reply can lie in this process' buffers for many milliseconds before the goroutine that
// waits for it runs, and so can a request before it is written. A timer that fires meanwhile says nothing about the
// server. [Waits] knows when each request was written and whether its reply has come.
package arrival

import (
	"net"
	"sync"
	"time"
)

// Waits notes when the requests of a connection were written whose replies have not been read. The zero Waits is ready.
// It is safe for concurrent use.
type Waits struct {
	mu       sync.Mutex  // guards the fields below
	readable func() bool // something has come that was not read; nil: that cannot be told
	taken    bool        // something was read, and may be a reply that Answered has not heard of yet
	answered int64       // the number of the last request whose reply was read
	unread   []written   // the oldest first
}

// written is a write that ended with the request of this number, and when it returned.
type written struct {
	last int64
	at   time.Time
}

// Dialing returns the Waits of a connection that is being made, which is itself something to wait for.
func Dialing() *Waits { return &Waits{unread: []written{{at: time.Now()}}} }

// Made notes that the connection has been made, and returns the one to use in its place. Beneath TLS it is the plain one.
func (w *Waits) Made(conn net.Conn) net.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unread = w.unread[:0]
	return watch(conn, w)
}

// Wrote notes that the requests up to this number have just been written.
func (w *Waits) Wrote(last int64) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if last > w.answered { // else somebody was quicker to read the reply
		w.unread = append(w.unread, written{last, now})
	}
}

// Answered notes that the replies up to this number have been read.
func (w *Waits) Answered(last int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered, w.taken = last, false
	n := 0
	for n < len(w.unread) && w.unread[n].last <= last {
		n++
	}
	if n > 0 {
		w.unread = append(w.unread[:0], w.unread[n:]...)
	}
}

// Patience is the shortest time after which one of several connections will have been silent for the budget. It is 0 if
// one has been: it has not replied to a request that was written so long ago, and nothing has come that is not read yet.
// own tells that the process has something to read, or has not written anything that the server could reply to.
func Patience(budget time.Duration, all func(yield func(*Waits) bool)) (left time.Duration, own bool) {
	now := time.Now()
	left, own = budget, true
	for w := range all {
		of, waits := w.patience(now, budget)
		if of == 0 {
			return 0, false
		}
		left, own = min(left, of), own && !waits
	}
	return left, own
}

func (w *Waits) patience(now time.Time, budget time.Duration) (left time.Duration, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unread) == 0 {
		return budget, false
	}
	if left = budget - now.Sub(w.unread[0].at); left > 0 {
		return left, true
	}
	if w.taken || w.readable != nil && w.readable() {
		return budget, false
	}
	return 0, true
}
