package gateway

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// body is a request's body that ends with an error if it grows too large, or if the next piece does not come in time.
type body struct {
	below io.ReadCloser
	w     http.ResponseWriter // the server's own
	rc    *http.ResponseController
	idle  time.Duration
	count atomic.Int64
	http1 bool

	mu      sync.Mutex // guards the fields below
	renewed time.Time  // when the deadline was set
	err     error      // what ended it
	touched func()
}

// newBody begins to wait for the first piece. On HTTP/1 the deadline holds from now on, because the server reads what a
// handler leaves, and a client may take for ever to send it. On HTTP/2 it resets the stream, and one whose request waits
// for its turn would lose its body.
func newBody(w http.ResponseWriter, r *http.Request, idle time.Duration) *body {
	b := &body{below: r.Body, w: w, rc: http.NewResponseController(w), idle: idle, http1: r.ProtoMajor == 1}
	if b.http1 {
		b.renewed = time.Now()
		_ = b.rc.SetReadDeadline(b.renewed.Add(idle))
	}
	return b
}

// limit bounds the body's size; 0 is no bound.
func (b *body) limit(most int64) {
	if most > 0 {
		b.below = http.MaxBytesReader(b.w, b.below, most)
	}
}

// onRead is called with each piece.
func (b *body) onRead(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.touched = f
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.renew(); err != nil {
		return 0, err
	}
	n, err := b.below.Read(p)
	b.count.Add(int64(n))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.touched != nil {
		b.touched()
	}
	if err != nil && b.err == nil {
		b.err = err
		if err == io.EOF { // or the server takes a client that waits for one that is gone
			_ = b.rc.SetReadDeadline(time.Time{})
		}
	}
	return n, err
}

// renew sets the deadline anew, at most once in a while. Transports may read a body when the handler is done, and then the
// connection must be left alone.
func (b *body) renew() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	if now := time.Now(); now.Sub(b.renewed) > b.idle/16 {
		b.renewed = now
		_ = b.rc.SetReadDeadline(now.Add(b.idle))
	}
	return nil
}

func (b *body) Close() error { return b.below.Close() }

// end lets go of the connection.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = http.ErrBodyReadAfterClose
	}
}
