package upstream

import (
	"bytes"
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

// An exchange is one request and its answer.
type exchange struct {
	w       http.ResponseWriter
	control http.ResponseController // of the caller's connection
	r       *http.Request
	res     *http.Response

	// Over a lane:
	plain bool   // the request may take one
	small []byte // its body
	line  *line
	stop  func() bool // has nobody close the line any more
	whole bool        // the answer has been read to its end

	// Over http.Transport:
	upgrade string
	body    *sentBody // nil if there is none
	cancel  context.CancelCauseFunc

	idle       time.Duration
	timer      *time.Timer // made when it is first needed
	delivering atomic.Bool

	mu      sync.Mutex // guards the following, and the caller's connection against those who come late
	begun   bool       // the answer itself: nothing can come before it any more
	read    bool       // small has been
	stalled bool       // the caller stopped sending
	idled   bool       // nothing moved for too long
	ended   bool
}

// errIdle is a server that stopped in the middle.
var errIdle error = idleError{}

type idleError struct{}

func (idleError) Error() string   { return "nothing was sent or received for too long" }
func (idleError) Timeout() bool   { return true }
func (idleError) Temporary() bool { return false }

var errProtocol = errors.New("it switched to a protocol that nobody asked for")

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
		return // the connections may serve another request by now
	}
	x.idled = true
	if x.line != nil {
		x.line.Close()
	}
	if x.cancel != nil {
		if x.body != nil && x.body.reading.Load() && !x.delivering.Load() {
			x.stalled = true
			x.cancel(errStalled)
			_ = x.control.SetReadDeadline(past) // the transport does not let go of a body while it is being read
			return
		}
		x.cancel(errIdle)
	}
	if x.delivering.Load() {
		// A caller that does not read holds up the writer, which learns of it this way alone.
		_ = x.control.SetWriteDeadline(past)
	}
}

// past is a deadline that ends what is waiting now.
var past = time.Unix(1, 0)

// end lets go of everything.
func (x *exchange) end() {
	if x.cancel != nil {
		x.cancel(nil)
	}
	if x.body != nil {
		x.body.stop(&x.control)
	}
	if x.timer != nil {
		x.timer.Stop()
	}
	x.mu.Lock()
	x.begun, x.ended = true, true
	x.mu.Unlock()
	if x.line == nil {
		x.res.Body.Close() // not before the request's body: the transport would wait for that
	} else {
		x.release(x.whole && !x.res.Close && x.line.in.Buffered() == 0)
	}
}

// release gives the line back, or ends it.
func (x *exchange) release(again bool) {
	x.mu.Lock()
	c := x.line
	x.line = nil
	x.mu.Unlock()
	if !x.stop() || !again {
		c.Close()
		return
	}
	c.lane.put(c)
}

// send has the server answer, and returns when the head of the answer is here.
func (x *exchange) send(s *server) *failure {
	if s.lane != nil && x.plain {
		return x.overLane(s)
	}
	if err := checkHead(x.r); err != nil {
		return &failure{kind: failRequest, err: err}
	}
	ctx, cancel := context.WithCancelCause(x.r.Context())
	x.cancel = cancel
	var answered atomic.Bool
	out := x.request(s).WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotFirstResponseByte: func() { answered.Store(true) },
		Got1xxResponse:       x.informed,
	}))
	if x.body != nil {
		x.touch()
	}
	res, err := s.wire.RoundTrip(out)
	if err == nil && res.StatusCode == http.StatusSwitchingProtocols && (x.upgrade == "" || !sameProtocol(x.upgrade, res.Header)) {
		res.Body.Close()
		err = errProtocol
	}
	if err == nil {
		x.mu.Lock()
		x.begun = true
		x.mu.Unlock()
		x.res = res
		return nil
	}
	x.mu.Lock()
	switch {
	case x.stalled:
		err = errStalled
	case x.idled:
		err = errIdle
	}
	x.mu.Unlock()
	cancel(nil)
	if x.body != nil {
		x.timer.Stop()
		err = x.body.fault(err)
		x.body.stop(&x.control)
	}
	return failureOf(x.r, err, answered.Load())
}

// request is what is sent.
func (x *exchange) request(s *server) *http.Request {
	r := x.r
	u := &url.URL{Scheme: s.url.Scheme, Host: s.url.Host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery}
	out := &http.Request{
		Method: r.Method, URL: u, Host: r.Host, Header: forwarded(r, x.upgrade),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: r.ContentLength,
	}
	x.body = nil
	switch {
	case len(x.small) > 0:
		out.Body = io.NopCloser(bytes.NewReader(x.small))
	case r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0:
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

// fault is what the caller's side did wrong, if that is why the server did not answer.
func (b *sentBody) fault(err error) error {
	if errors.Is(err, errStalled) {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return &requestError{b.err}
	}
	return err
}

// A requestError is a request that could not be read.
type requestError struct{ err error }

func (e *requestError) Error() string { return "reading the request: " + e.err.Error() }
func (e *requestError) Unwrap() error { return e.err }
