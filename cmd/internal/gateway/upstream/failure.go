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

// kinds of failure.
type failKind int

const (
	failDial        failKind = iota // no connection: nothing was sent
	failTimeout                     // the answer did not begin in time
	failBroken                      // the connection ended, or what came was no answer
	failRepeatable                  // so it did before a byte of an answer, and sending the request again can do no harm
	failRequestBody                 // the caller stopped sending its request
	failRequest                     // the request cannot be sent
	failKinds
)

var failNames = [failKinds]string{"dial", "timeout", "broken", "repeatable", "request body", "request"}

func (k failKind) String() string { return failNames[k] }

// A failure is why a server has not answered.
type failure struct {
	kind     failKind
	answered bool // a byte of an answer has come
	excused  bool // the request may be why: the server is not to blame
	err      error
}

// fails reports whether it speaks against the server.
func (f *failure) fails() bool {
	return !f.excused && f.kind != failRequestBody && f.kind != failRequest
}

// acceptedHead is a length of request heads that servers of all kinds accept. Some end the connection without a response,
// or before it can be read, when a head is longer than they accept.
const acceptedHead = 8 << 10

var errHeadTooLarge = errors.New("its header is larger than the server accepts")

// An unprocessedError is a request of which the server said that it did nothing.
type unprocessedError struct {
	err   error
	names bool // an error, which may be this request's
}

func (e *unprocessedError) Error() string { return e.err.Error() }
func (e *unprocessedError) Unwrap() error { return e.err }

// excuse looks at a connection that ended without a response, or in the middle of one, for what the request has to do with it.
// head is the length of the request's head. Clients must not be able to make a server look bad.
func (rt *roundTrip) excuse(f *failure, head int) {
	var unprocessed *unprocessedError
	var lost *lostError
	switch {
	case f.kind != failBroken && f.kind != failRepeatable:
		return
	case errors.As(f.err, &unprocessed) && (head <= acceptedHead || !unprocessed.names):
		f.kind = failRepeatable
		if rt.body != nil { // which is not kept
			f.kind = failBroken
		}
		f.excused = head > acceptedHead && errors.As(f.err, &lost)
	case head > acceptedHead && !f.answered:
		f.kind, f.err = failRequest, fmt.Errorf("%w: %w", errHeadTooLarge, f.err)
		return
	case rt.body != nil && !rt.body.isComplete():
		// Some servers do so with a body that they do not want.
		f.excused = true
	}
	// One connection is one failure, however many requests end with it, and whichever of them may be why.
	if !f.excused && errors.As(f.err, &lost) {
		f.excused = lost.conn.lost.Swap(true)
	}
}

var errCallerStalled = errors.New("the caller stopped sending")

// failureOf sorts an error that came instead of an answer.
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
		// Nobody knows how far the server has come, and it has had its time.
		f.kind = failTimeout
	}
	return f
}

// endsEarly reports whether the caller ended its side of the connection in the middle of its request. Its context ends with
// that, though it may still read.
func endsEarly(err error) bool {
	var request *requestError
	return errors.As(err, &request) && errors.Is(request.err, io.ErrUnexpectedEOF)
}

// idempotent reports whether a request may arrive twice: by its method, and only without a body, which is not kept. Requests of
// HTTP/2 clients have a Body in any case, and a length of 0 if there is none.
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

// statusClientClosed is what a caller that left is counted as. It does not see it.
const statusClientClosed = 499

// refuse answers in the server's place.
func (g *Group) refuse(w http.ResponseWriter, r *http.Request, s *server, f *failure) {
	if clientClosed(r.Context()) && f.kind != failRequestBody && !endsEarly(f.err) { // ending its reads ends its context too
		w.WriteHeader(statusClientClosed)
		return
	}
	if !f.fails() {
		problem.SetAside(w)
	}
	g.log.warn("a request could not be forwarded", g, s, f.err)
	var request *requestError
	switch {
	case f.kind == failRequestBody:
		w.Header().Set("Connection", "close")
		answer(w, http.StatusRequestTimeout, "The request did not arrive completely.")
	case errors.As(f.err, new(*http.MaxBytesError)):
		answer(w, http.StatusRequestEntityTooLarge, "The request is larger than this gateway forwards.")
	case errors.Is(f.err, errHeadTooLarge):
		answer(w, http.StatusRequestHeaderFieldsTooLarge, "The request's path and headers are larger than the server behind this gateway accepts.")
	case errors.Is(f.err, errNoUpgrade):
		answer(w, http.StatusBadRequest, "The server behind this gateway does not change protocols, as to WebSocket.")
	case endsEarly(f.err) && r.ContentLength > 0:
		answer(w, http.StatusBadRequest, "The request's body ended before its announced length.")
	case endsEarly(f.err):
		answer(w, http.StatusBadRequest, "The request's body ended before its last chunk.")
	case errors.As(f.err, &request) && request.body:
		answer(w, http.StatusBadRequest, "The request's body is malformed.")
	case f.kind == failRequest:
		answer(w, http.StatusBadRequest, "The request cannot be forwarded.")
	case f.kind == failTimeout || r.Context().Err() != nil:
		answer(w, http.StatusGatewayTimeout, "The server behind this gateway did not answer in time.")
	case f.kind == failDial:
		answer(w, http.StatusBadGateway, "The server behind this gateway cannot be reached.")
	default:
		answer(w, http.StatusBadGateway, "The server behind this gateway did not answer properly.")
	}
}

// answer writes a problem as RFC 9457 has it.
func answer(w http.ResponseWriter, status int, detail string) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	p := problem.New(status, detail)
	p.RequestID = h.Get("X-Request-Id")
	p.Write(w)
}

// A sampler writes one line a second at most: an outage must not fill the disk as well.
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
	name := "" // of no server yet
	if s != nil {
		name = s.name
	}
	l.to.Warn(text, "upstream", g.cfg.Name, "server", name, "error", err.Error(), "not_logged", skipped)
}
