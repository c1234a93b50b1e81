// Package arrival distinguishes a slow server from a slow process.
//
// When all CPUs are busy, a reply can wait in this process's buffers for many milliseconds before the goroutine that
// reads it runs, and a request before it is written. A timer that fires in between says nothing about the server.
// [Waits] tracks when each request was written and whether its reply has arrived.
package arrival

import (
	"net"
	"sync"
	"time"
)

// Waits tracks the requests of a connection that were written and whose replies have not been read. The zero value is
// ready to use. It is safe for concurrent use.
type Waits struct {
	mu       sync.Mutex  // guards the fields below
	readable func() bool // data has arrived and was not read; nil: unknown
	taken    bool        // data was read that may be a reply for which Answered was not called yet
	answered int64       // number of the last request whose reply was read
	unread   []written   // oldest first
}

// written is a write that ended with the request of this number, and the time when it returned.
type written struct {
	last int64
	at   time.Time
}

// Dialing returns the Waits of a connection that is being opened, which counts as an unanswered request.
func Dialing() *Waits { return &Waits{unread: []written{{at: time.Now()}}} }

// Made records that the connection has been opened, and returns the connection to use instead. With TLS, conn is the
// connection below TLS.
func (w *Waits) Made(conn net.Conn) net.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unread = w.unread[:0]
	return watch(conn, w)
}

// Wrote records that the requests up to this number have just been written.
func (w *Waits) Wrote(last int64) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if last > w.answered { // otherwise the reply was already read
		w.unread = append(w.unread, written{last, now})
	}
}

// Answered records that the replies up to this number have been read.
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

// Patience returns the shortest time after which one of several connections will have been silent for the budget. It is
// 0 if one already has: it has not replied to a request that was written that long ago, and no unread data has arrived.
// own reports whether the process itself is late: it has data to read, or has written no request that a server could
// reply to.
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
