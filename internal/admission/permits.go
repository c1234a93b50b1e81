package admission

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
)

// permitRetryAfter is the maximum RetryAfter of a denial by a concurrency limit. The store returns the time until the first
// permit expires, but most requests end long before that.
const permitRetryAfter = time.Second

// holdPermits returns the permits of a request and sets the retry times of their decisions. If the request is denied, the
// caller must release them.
func holdPermits(l *sluice.Limiter, takes []sluice.Take, ds []sluice.Decision) *sluice.Permit {
	permit := private.HoldPermits(l, &takes, &ds).(*sluice.Permit)
	for i := range takes {
		if takes[i].EffectiveLimit().Algorithm == sluice.Concurrency {
			ds[i].RetryAfter, ds[i].ResetAfter = min(ds[i].RetryAfter, permitRetryAfter), min(ds[i].ResetAfter, permitRetryAfter)
		}
	}
	return permit
}

// permitHandler releases the permit of its one request when next returns or panics or, if next has hijacked the connection,
// when the connection is closed too.
type permitHandler struct {
	next   http.Handler
	permit *sluice.Permit
}

func (f *permitHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	in := &inFlight{permit: f.permit, parts: 1}
	defer in.end(r)
	f.next.ServeHTTP(in.wrap(w, r), r)
}

// inFlight counts the unfinished parts of a request: its handler and a hijacked connection.
type inFlight struct {
	permit *sluice.Permit

	mu    sync.Mutex // guards parts
	parts int
}

func (in *inFlight) end(r *http.Request) {
	in.mu.Lock()
	in.parts--
	last := in.parts == 0
	in.mu.Unlock()
	if last {
		in.permit.Release(r.Context())
	}
}

// wrap returns a writer that tracks a hijacked connection, or w itself if it is no http.Hijacker.
func (in *inFlight) wrap(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	below, ok := w.(http.Hijacker)
	if !ok {
		return w
	}
	h := hijackable{w, below, in, r}
	if f, ok := w.(http.Flusher); ok {
		return struct {
			hijackable
			http.Flusher
		}{h, f}
	}
	return h
}

type hijackable struct {
	http.ResponseWriter
	below http.Hijacker
	in    *inFlight
	r     *http.Request
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (h hijackable) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// ReadFrom preserves the io.ReaderFrom of the writer, which uses sendfile.
func (h hijackable) ReadFrom(r io.Reader) (int64, error) { return io.Copy(h.ResponseWriter, r) }

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := h.below.Hijack()
	if err != nil {
		return conn, buf, err
	}
	h.in.mu.Lock()
	h.in.parts++
	h.in.mu.Unlock()
	c := &permitConn{Conn: conn, closed: sync.OnceFunc(func() { h.in.end(h.r) })}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return struct {
			*permitConn
			closeWriter
		}{c, half}, buf, nil
	}
	return c, buf, nil
}

type closeWriter interface{ CloseWrite() error }

// permitConn is a hijacked connection. Its request is in flight until it is closed.
type permitConn struct {
	net.Conn
	closed func()
}

func (c *permitConn) Close() error {
	err := c.Conn.Close()
	c.closed()
	return err
}

// ReadFrom preserves the io.ReaderFrom of the connection.
func (c *permitConn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }
