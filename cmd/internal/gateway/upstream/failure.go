package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/problem"
)

// failKind is the kind of a failure.
type failKind int

const (
	failDial        failKind = iota // no connection: nothing was sent
	failTimeout                     // the response did not start in time
	failBroken                      // the connection ended, or the response is invalid
	failRepeatable                  // the connection ended before a byte of the response, and the request may be repeated
	failRequestBody                 // the caller stopped sending its request
	failRequest                     // the request cannot be sent
	failKinds
)

var failNames = [failKinds]string{"dial", "timeout", "broken", "repeatable", "request body", "request"}

func (k failKind) String() string { return failNames[k] }

// A failure is the reason why there is no response of a server.
type failure struct {
	kind     failKind
	answered bool // a byte of the response was received
	excused  bool // the request may be the cause, so that it does not count against the server
	err      error
}

// fails reports whether the failure counts against the server.
func (f *failure) fails() bool {
	return !f.excused && f.kind != failRequestBody && f.kind != failRequest
}

// acceptedHead is the length of a request head that all common servers accept. Some servers close the connection without a
// response, or before it can be read, if a head is longer than they accept.
const acceptedHead = 8 << 10

var errHeadTooLarge = errors.New("request header larger than the server accepts")

// An unprocessedError is the error of a request that the server declared unprocessed.
type unprocessedError struct {
	err   error
	names bool // the server sent an error code, which this request may have caused
}

func (e *unprocessedError) Error() string { return e.err.Error() }
func (e *unprocessedError) Unwrap() error { return e.err }

// excuse checks whether the request may have caused the end of a connection without a complete response, because clients must
// not be able to get a server ejected. head is the length of the request's head.
func (rt *roundTrip) excuse(f *failure, head int) {
	var unprocessed *unprocessedError
	var lost *lostError
	switch {
	case f.kind != failBroken && f.kind != failRepeatable:
		return
	case errors.As(f.err, &unprocessed) && (head <= acceptedHead || !unprocessed.names):
		f.kind = failRepeatable
		if rt.body != nil { // it is not buffered
			f.kind = failBroken
		}
		f.excused = head > acceptedHead && errors.As(f.err, &lost)
	case head > acceptedHead && !f.answered:
		f.kind, f.err = failRequest, fmt.Errorf("%w: %w", errHeadTooLarge, f.err)
		return
	case rt.body != nil && !rt.body.isComplete():
		// Some servers close the connection to reject a body.
		f.excused = true
	}
	// A lost connection is one failure, however many requests end with it, and whichever of them may be the cause.
	if !f.excused && errors.As(f.err, &lost) {
		f.excused = lost.conn.lost.Swap(true)
	}
}

var errCallerStalled = errors.New("caller stopped sending")

// failureOf classifies the error of a request without a response.
func failureOf(r *http.Request, err error, answered bool) *failure {
	if ctx := r.Context(); ctx.Err() != nil && !errors.Is(err, errCallerStalled) && !endsEarly(err) {
		err = context.Cause(ctx)
	}
	f := &failure{kind: failBroken, err: err, answered: answered}
	if !answered && idempotent(r) {
		f.kind = failRepeatable
	}
	var dial *dialError
	var request *requestError
	var timeout net.Error
	switch {
	case errors.As(err, &dial):
		f.kind = failDial
	case errors.As(err, &request):
		f.kind = failRequest
		if errors.Is(err, os.ErrDeadlineExceeded) {
			f.kind = failRequestBody
		}
	case errors.Is(err, errCallerStalled):
		f.kind = failRequestBody
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		// The server may have processed the request, and its timeout has expired.
		f.kind = failTimeout
	}
	return f
}

// endsEarly reports whether the caller closed its side of the connection in the middle of its request. This cancels its
// context, although it may still read.
func endsEarly(err error) bool {
	var request *requestError
	return errors.As(err, &request) && errors.Is(request.err, io.ErrUnexpectedEOF)
}

// idempotent reports whether a request may be sent twice: its method is idempotent and it has no body, which is not buffered.
// Requests of HTTP/2 clients always have a Body, and a length of 0 if it is empty.
func idempotent(r *http.Request) bool {
	if r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody {
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// statusClientClosed is the recorded status of a caller that has disconnected.
const statusClientClosed = 499

// refuse writes the response to a request that failed.
func (g *Group) refuse(w http.ResponseWriter, r *http.Request, s *server, f *failure) {
	if clientClosed(r.Context()) && f.kind != failRequestBody && !endsEarly(f.err) { // a half-closed connection cancels the context too
		w.WriteHeader(statusClientClosed)
		return
	}
	if !f.fails() {
		problem.SetAside(w)
	}
	g.log.warn("forwarding failed", g, s, f.err)
	var request *requestError
	switch {
	case f.kind == failRequestBody:
		w.Header().Set("Connection", "close")
		writeProblem(w, r, http.StatusRequestTimeout, "The request did not arrive completely.")
	case errors.As(f.err, new(*http.MaxBytesError)):
		writeProblem(w, r, http.StatusRequestEntityTooLarge, "The request body exceeds the maximum size of this route.")
	case errors.Is(f.err, errHeadTooLarge):
		writeProblem(w, r, http.StatusRequestHeaderFieldsTooLarge, "The path and headers of the request are larger than the upstream accepts.")
	case errors.Is(f.err, errNoUpgrade):
		writeProblem(w, r, http.StatusBadRequest, "The upstream does not support protocol upgrades such as WebSocket.")
	case endsEarly(f.err) && r.ContentLength > 0:
		writeProblem(w, r, http.StatusBadRequest, "The request body ended before its Content-Length.")
	case endsEarly(f.err):
		writeProblem(w, r, http.StatusBadRequest, "The request body ended before its last chunk.")
	case errors.As(f.err, &request) && request.body:
		writeProblem(w, r, http.StatusBadRequest, "The request body is malformed.")
	case f.kind == failRequest:
		writeProblem(w, r, http.StatusBadRequest, "The request cannot be forwarded.")
	case f.kind == failTimeout || r.Context().Err() != nil:
		writeProblem(w, r, http.StatusGatewayTimeout, "The upstream did not respond in time.")
	case f.kind == failDial:
		writeProblem(w, r, http.StatusBadGateway, "The upstream cannot be reached.")
	default:
		writeProblem(w, r, http.StatusBadGateway, "The upstream sent no valid response.")
	}
}

// writeProblem writes a problem document (RFC 9457).
func writeProblem(w http.ResponseWriter, r *http.Request, status int, detail string) {
	w.Header().Set("Cache-Control", "no-store")
	p := problem.New(status, detail)
	p.Instance = problem.Instance(r)
	p.Write(w)
}

// A sampler logs at most one line per second, so that an outage does not fill the disk.
type sampler struct {
	to *slog.Logger

	mu      sync.Mutex
	next    time.Time
	skipped int
}

func (l *sampler) warn(text string, g *Group, s *server, err error) {
	now := time.Now()
	l.mu.Lock()
	if now.Before(l.next) {
		l.skipped++
		l.mu.Unlock()
		return
	}
	skipped := l.skipped
	l.next, l.skipped = now.Add(time.Second), 0
	l.mu.Unlock()
	name := "" // no server was chosen
	if s != nil {
		name = s.name
	}
	l.to.Warn(text, "upstream", g.cfg.Name, "server", name, "error", err.Error(), "suppressed", skipped)
}
