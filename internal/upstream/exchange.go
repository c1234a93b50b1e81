package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// An exchange is one request and its answer with one server.
type exchange struct {
	w       http.ResponseWriter
	control *http.ResponseController // of the caller's connection
	r       *http.Request
	res     *http.Response
	body    *sentBody // nil if there is none
	upgrade string

	// abort ends the server's side.
	abort context.CancelCauseFunc

	idle       time.Duration
	timer      *time.Timer // made when it is first needed
	delivering atomic.Bool

	mu    sync.Mutex // guards the following, and the caller's connection against those who come late
	begun bool       // the answer itself: nothing can come before it any more
	ended bool
}

// errIdle is a server that stopped in the middle.
var errIdle error = idleError{}

type idleError struct{}

func (idleError) Error() string   { return "nothing was sent or received for too long" }
func (idleError) Timeout() bool   { return true }
func (idleError) Temporary() bool { return false }

// touch says that something moved: nothing may for longer than idle.
func (x *exchange) touch() {
	if x.timer == nil {
		x.timer = time.AfterFunc(x.idle, x.expire)
		return
	}
	x.timer.Reset(x.idle)
}

func (x *exchange) expire() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return // the caller's connection may serve another request by now
	}
	if x.body != nil && x.body.reading.Load() && !x.delivering.Load() {
		x.abort(errStalled)
		return
	}
	x.abort(errIdle)
	if x.delivering.Load() {
		// A caller that does not read holds up the writer, which learns of it this way alone.
		_ = x.control.SetWriteDeadline(past)
	}
}

// past is a deadline that ends what is waiting now.
var past = time.Unix(1, 0)

// end lets go of everything.
func (x *exchange) end() {
	x.abort(nil)
	if x.body != nil {
		x.body.stop(x.control)
	}
	if x.timer != nil {
		x.timer.Stop()
	}
	x.mu.Lock()
	x.begun, x.ended = true, true
	x.mu.Unlock()
}

// exchange sends a request to the server and returns with the head of its answer.
func (s *server) exchange(w http.ResponseWriter, r *http.Request) (*exchange, *failure) {
	x := &exchange{w: w, control: http.NewResponseController(w), r: r, idle: s.group.cfg.Timeouts.Idle}
	if r.ProtoMajor == 1 {
		x.upgrade = upgradeOf(r.Header)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	x.abort = cancel
	var answered atomic.Bool
	out := x.request(s).WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotFirstResponseByte: func() { answered.Store(true) },
		Got1xxResponse:       x.informed,
	}))
	if x.body != nil {
		x.timer = time.AfterFunc(x.idle, x.expire)
	}
	res, err := s.wire.RoundTrip(out)
	x.mu.Lock()
	x.begun = true
	x.mu.Unlock()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && r.Context().Err() == nil {
			err = cause // errStalled or errIdle
		}
		err = x.bodyFault(err)
		x.end()
		return nil, failureOf(r, err, answered.Load())
	}
	if res.StatusCode == http.StatusSwitchingProtocols && (x.upgrade == "" || !sameProtocol(x.upgrade, res.Header)) {
		res.Body.Close()
		x.end()
		return nil, failureOf(r, errors.New("it switched to a protocol that nobody asked for"), true)
	}
	x.res = res
	return x, nil
}

// request is what is sent.
func (x *exchange) request(s *server) *http.Request {
	r := x.r
	u := &url.URL{Scheme: s.url.Scheme, Host: s.url.Host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery}
	out := &http.Request{
		Method: r.Method, URL: u, Host: r.Host, Header: forwarded(r, x.upgrade),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: r.ContentLength,
	}
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		x.body = &sentBody{x: x, from: r.Body, length: r.ContentLength}
		out.Body = x.body
		out.Trailer = r.Trailer // its values come with the end of the body
		// Servers may answer while the caller still sends.
		_ = x.control.EnableFullDuplex()
	}
	return out
}

// informed hands on an answer that comes before the answer.
func (x *exchange) informed(code int, header textproto.MIMEHeader) error {
	if code == http.StatusContinue {
		return nil // the caller has been told by its own server
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.begun {
		return nil
	}
	h := x.w.Header()
	kept := h.Clone()
	clear(h)
	for name, values := range header {
		h[name] = values
	}
	StripHopByHop(h)
	x.w.WriteHeader(code)
	clear(h)
	for name, values := range kept {
		h[name] = values
	}
	return nil
}

// A sentBody is a request's body on its way to the server.
type sentBody struct {
	x       *exchange
	from    io.Reader
	length  int64 // -1: not known
	got     atomic.Int64
	reading atomic.Bool

	mu      sync.Mutex // held while reading
	stopped bool
	err     error // of the caller's side
}

var errBodyStopped = errors.New("the request is over")

func (b *sentBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return 0, errBodyStopped
	}
	b.x.timer.Reset(b.x.idle)
	b.reading.Store(true)
	n, err := b.from.Read(p)
	b.got.Add(int64(n))
	b.reading.Store(false)
	switch {
	case err == nil:
		b.x.timer.Reset(b.x.idle)
	case err == io.EOF && !b.x.delivering.Load():
		b.x.timer.Stop() // from here the transport's own timeout for the answer counts
	case err != io.EOF:
		b.err = err
	}
	return n, err
}

// Close leaves the caller's body to the server that reads it.
func (b *sentBody) Close() error { return nil }

// stop has nobody read the body any more. A handler that returns while somebody does would wait for the caller. The
// caller's connection is lost by that, so it is spared when the body is complete and only its end is being read.
func (b *sentBody) stop(control *http.ResponseController) {
	if b.reading.Load() && b.got.Load() != b.length {
		_ = control.SetReadDeadline(past)
	}
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
}

// bodyFault is what the caller's side did wrong, if that is why the server did not answer.
func (x *exchange) bodyFault(err error) error {
	if x.body == nil || errors.Is(err, errStalled) {
		return err
	}
	x.body.mu.Lock()
	defer x.body.mu.Unlock()
	if x.body.err != nil {
		return &requestError{x.body.err}
	}
	return err
}

// A requestError is a request that could not be read.
type requestError struct{ err error }

func (e *requestError) Error() string { return "reading the request: " + e.err.Error() }
func (e *requestError) Unwrap() error { return e.err }
