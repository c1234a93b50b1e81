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

// permitRetryAfter is when a caller may try again who was denied because too many requests are in flight. The store says when
// the first lease ends, but most requests end long before that.
const permitRetryAfter = time.Second

// holdPermits keeps the slots of a request, and has the decisions say what callers should be told. A request that is denied
// after all gives them back.
func holdPermits(l *sluice.Limiter, takes []sluice.Take, ds []sluice.Decision) *sluice.Permit {
	permit := private.HoldPermits(l, &takes, &ds).(*sluice.Permit)
	for i := range takes {
		if takes[i].EffectiveLimit().Algorithm == sluice.Concurrency {
			ds[i].RetryAfter, ds[i].ResetAfter = min(ds[i].RetryAfter, permitRetryAfter), min(ds[i].ResetAfter, permitRetryAfter)
		}
	}
	return permit
}

// permitHandler is a handler that gives a slot back when it has served its one request: when the handler below returns or
// panics, or if that has taken over the connection, when it has closed it too.
type permitHandler struct {
	next   http.Handler
	permit *sluice.Permit
}

func (f *permitHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	in := &inFlight{slot: f.permit, parts: 1}
	defer in.end(r)
	f.next.ServeHTTP(in.wrap(w, r), r)
}

// inFlight counts what is left of a request: its handler, and the connection that the handler has taken over.
type inFlight struct {
	slot *sluice.Permit

	mu    sync.Mutex // guards parts
	parts int
}

func (in *inFlight) end(r *http.Request) {
	in.mu.Lock()
	in.parts--
	last := in.parts == 0
	in.mu.Unlock()
	if last {
		in.slot.Release(r.Context())
	}
}

// wrap returns a writer that knows when the connection is taken over, if it can be.
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

// Unwrap lets http.ResponseController reach what the writer below can do.
func (h hijackable) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// ReadFrom keeps the writer's own way of copying files.
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

// permitConn is a connection that keeps a request in flight until it is closed.
type permitConn struct {
	net.Conn
	closed func()
}

func (c *permitConn) Close() error {
	err := c.Conn.Close()
	c.closed()
	return err
}

// ReadFrom keeps the connection's own way of copying.
func (c *permitConn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }
