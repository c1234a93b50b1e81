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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// A roundTrip is one request and its response.
type roundTrip struct {
	w       http.ResponseWriter
	control http.ResponseController // of the caller's connection
	r       *http.Request
	res     *http.Response

	// Over a connection pool:
	poolable     bool   // the request may take one
	smallBody    []byte // its body
	conn         *pooledConn
	stopClosing  func() bool // prevents closing the connection when the request ends
	bodyComplete bool        // the answer has been read to its end

	// Over http.Transport:
	upgrade string
	body    *sentBody // nil if there is none
	cancel  context.CancelCauseFunc

	slow          *slowWriters // nil: what the server sends ahead is not held here
	resend        resend
	idleTimeout   time.Duration
	headerTimeout time.Duration // until the response begins
	timer         *watch        // made when it is first needed
	delivering    atomic.Bool
	passing       atomic.Bool // a piece of the response is being written to the caller

	informational struct {
		mu      sync.Mutex // guards the following; it is not held while writing
		waiting []informational
	}

	// mu guards the following, and w and control against callbacks on other goroutines (timers, http.Transport): those hold
	// it, and return at once unless the turn is still their own.
	mu               sync.Mutex
	attempt          int  // number of the attempt in progress; it changes when one begins and when one ends
	responseBegun    bool // the answer itself: nothing can come before it any more
	smallBodyRead    bool // smallBody has been read
	callerStalled    bool // the caller stopped sending
	timedOut         bool // nothing moved for too long
	callerNotReading bool // because the caller did not read
}

// beginAttempt begins an attempt.
func (rt *roundTrip) beginAttempt() { rt.endAttempt() }

// endAttempt ends an attempt: its callbacks may still run, also after the handler has returned, when the connections serve other
// requests and net/http panics on calls of the writer.
func (rt *roundTrip) endAttempt() {
	rt.mu.Lock()
	rt.attempt++
	rt.mu.Unlock()
}

// errIdle is a server that stopped in the middle.
var errIdle error = timeoutError("nothing was sent or received for too long")

type timeoutError string

func (e timeoutError) Error() string { return string(e) }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return false }

var (
	errProtocol = errors.New("it switched to a protocol that nobody asked for")
	errStatus   = errors.New("the status of its answer is not between 100 and 999")
)

// checkStatus refuses what cannot be handed on: net/http panics when it is told to write a status like 99, and only a
// caller who asked for another protocol can be told that it is spoken now.
func (rt *roundTrip) checkStatus(res *http.Response) error {
	switch code := res.StatusCode; {
	case code < 100 || code > 999:
		return errStatus
	case code == http.StatusSwitchingProtocols && (rt.upgrade == "" || !sameProtocol(rt.upgrade, res.Header)):
		return errProtocol
	}
	return nil
}

// resetIdleTimer is called when data moved: nothing may for longer than idleTimeout.
func (rt *roundTrip) resetIdleTimer() {
	if rt.timer == nil {
		turn := rt.attempt
		rt.timer = after(rt.idleTimeout, func() { rt.expire(turn, false) })
		return
	}
	rt.timer.Reset(rt.idleTimeout)
}

// A watch is a timer that lets go of its function when it ends. The runtime may keep a timer that was stopped until its time
// comes, and with it the request and its body.
type watch struct {
	*time.Timer
	f atomic.Pointer[func()]
}

// after calls f later, unless the watch ends before.
func after(d time.Duration, f func()) *watch {
	w := &watch{}
	w.f.Store(&f)
	w.Timer = time.AfterFunc(d, func() {
		if f := w.f.Load(); f != nil {
			(*f)()
		}
	})
	return w
}

// end stops the timer for good.
func (w *watch) end() {
	w.Stop()
	w.f.Store(nil)
}

// expire gives up, because nothing moved for too long, or because the caller is known to be too slow.
func (rt *roundTrip) expire(turn int, slow bool) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if turn != rt.attempt {
		return
	}
	rt.timedOut = true
	if rt.conn != nil {
		rt.conn.Close()
	}
	if rt.cancel != nil {
		if rt.body != nil && rt.body.reading.Load() && !rt.delivering.Load() {
			rt.callerStalled = true
			rt.cancel(errCallerStalled)
			_ = rt.control.SetReadDeadline(past) // the transport does not let go of a body while it is being read
			return
		}
		rt.cancel(errIdle)
	}
	if rt.delivering.Load() {
		rt.callerNotReading = slow || rt.passing.Load()
		// A caller that does not read holds up the writer, which learns of it this way alone.
		_ = rt.control.SetWriteDeadline(past)
	}
}

// past is a deadline that ends what is waiting now.
var past = time.Unix(1, 0)

// end lets go of everything.
func (rt *roundTrip) end() {
	rt.stopSending()
	if rt.conn == nil {
		rt.res.Body.Close() // not before the request's body: the transport would wait for that
	} else {
		rt.release(rt.bodyComplete && !rt.res.Close)
	}
}

// stopSending ends the attempt, and what of it is in progress elsewhere.
func (rt *roundTrip) stopSending() {
	rt.endAttempt()
	if rt.cancel != nil {
		rt.cancel(nil)
	}
	if rt.body != nil {
		rt.body.stop(&rt.control)
	}
	if rt.timer != nil {
		rt.timer.end() // after the body, which starts it anew
		rt.timer = nil
	}
}

// release gives the line back, or ends it.
func (rt *roundTrip) release(again bool) {
	rt.mu.Lock()
	c := rt.conn
	rt.conn = nil
	rt.mu.Unlock()
	if !rt.stopClosing() || !again {
		c.Close()
		return
	}
	c.pool.put(c)
}

// send has the server answer, and returns when the head of the answer is here.
func (rt *roundTrip) send(s *server) *failure {
	if s.pool != nil && rt.poolable {
		return rt.roundTripHTTP1(s)
	}
	head, err := checkHead(rt.r)
	if err != nil {
		return &failure{kind: failRequest, err: err}
	}
	turn := rt.attempt
	ctx, cancel := context.WithCancelCause(rt.r.Context())
	rt.cancel = cancel
	var answered atomic.Bool
	out := rt.request(s).WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotFirstResponseByte: func() { answered.Store(true) },
		Got1xxResponse:       func(code int, h textproto.MIMEHeader) error { return rt.forward1xx(turn, code, h) },
	}))
	if rt.body != nil {
		rt.resetIdleTimer()
	}
	res, err := s.roundTrip(out, head, cancel, &rt.resend)
	if err == nil {
		if err = rt.checkStatus(res); err != nil {
			res.Body.Close()
		}
	}
	if err == nil {
		rt.mu.Lock()
		for rt.writeNext1xxLocked() { // in their order, and before the response
		}
		rt.responseBegun = true
		rt.mu.Unlock()
		rt.res = res
		return nil
	}
	if strings.Contains(err.Error(), "server response headers exceeded") { // http.Transport's error has no type
		bounds.UpstreamHeader.Reached()
	}
	rt.stopSending()
	switch { // which does not change any more
	case rt.callerStalled:
		err = errCallerStalled
	case rt.timedOut:
		err = errIdle
	}
	if rt.body != nil {
		err = rt.body.fault(err)
	}
	f := failureOf(rt.r, err, answered.Load())
	rt.excuse(f, head)
	return f
}

// request is what is sent.
func (rt *roundTrip) request(s *server) *http.Request {
	r := rt.r
	u := &url.URL{Scheme: s.url.Scheme, Host: s.url.Host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery}
	out := &http.Request{
		Method: r.Method, URL: u, Host: r.Host, Header: forwarded(r, rt.upgrade),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: r.ContentLength,
	}
	rt.body = nil
	switch {
	case len(rt.smallBody) > 0:
		out.Body = io.NopCloser(bytes.NewReader(rt.smallBody))
	case r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0:
		rt.body = &sentBody{x: rt, attempt: rt.attempt, from: r.Body, length: r.ContentLength}
		rt.body.expects = r.ProtoMajor == 1 && r.ProtoMinor > 0 && httpguts.HeaderValuesContainsToken(r.Header["Expect"], "100-continue")
		out.Body = rt.body
		out.Trailer = r.Trailer // its values come with the end of the body
		// Servers may answer while the caller still sends.
		_ = rt.control.EnableFullDuplex()
	}
	return out
}

// forwards1xx reports whether an informational response is handed on to the caller.
func (rt *roundTrip) forwards1xx(code int) (bool, error) {
	switch code {
	case http.StatusContinue:
		return false, nil // reading the caller's body tells it so
	case http.StatusSwitchingProtocols:
		return false, errProtocol // in HTTP/2, where it is one of these
	}
	return rt.r.ProtoAtLeast(1, 1), nil // a caller of HTTP/1.0 would take it for the response
}

// An interim is an informational response that waits to be written to the caller.
type informational struct {
	attempt, code int
	header        textproto.MIMEHeader
}

// maxInformational is the number of those. Further ones are dropped: none is needed.
const maxInformational = 8

// forward1xx queues an informational response for the caller. It is called where a connection to the server is read, which others may share,
// and so waits for nothing.
func (rt *roundTrip) forward1xx(turn, code int, header textproto.MIMEHeader) error {
	if ok, err := rt.forwards1xx(code); !ok {
		return err
	}
	rt.informational.mu.Lock()
	defer rt.informational.mu.Unlock()
	if len(rt.informational.waiting) == maxInformational {
		bounds.Interims.Reached()
		return nil
	}
	rt.informational.waiting = append(rt.informational.waiting, informational{turn, code, header})
	if len(rt.informational.waiting) == 1 {
		go func() {
			for more := true; more; {
				rt.mu.Lock()
				more = rt.writeNext1xxLocked()
				rt.mu.Unlock()
			}
		}()
	}
	return nil
}

// writeNext1xxLocked writes the next informational response, and reports whether there was one.
func (rt *roundTrip) writeNext1xxLocked() bool {
	rt.informational.mu.Lock()
	if len(rt.informational.waiting) == 0 {
		rt.informational.mu.Unlock()
		return false
	}
	next := rt.informational.waiting[0]
	rt.informational.waiting = rt.informational.waiting[1:]
	rt.informational.mu.Unlock()
	rt.write1xxLocked(next.attempt, next.code, next.header)
	return true
}

// write1xx writes an informational response to the caller. A caller that does not read it is given up after idleTimeout: the
// attempt cannot end while it is being written.
func (rt *roundTrip) write1xx(turn, code int, header textproto.MIMEHeader) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.write1xxLocked(turn, code, header)
}

func (rt *roundTrip) write1xxLocked(turn, code int, header textproto.MIMEHeader) {
	if turn != rt.attempt || rt.responseBegun {
		return
	}
	h := rt.w.Header()
	kept := h.Clone()
	clear(h)
	for name, values := range header {
		h[name] = values
	}
	StripHopByHop(h)
	// With it net/http's HTTP/2 server writes a copy. It would read h in the background otherwise, after WriteHeader has
	// returned because the caller left, and iterating over a map that is written ends the process.
	h["Content-Length"] = nil
	_ = rt.control.SetWriteDeadline(time.Now().Add(rt.idleTimeout))
	rt.w.WriteHeader(code)
	_ = rt.control.SetWriteDeadline(time.Time{})
	clear(h)
	for name, values := range kept {
		h[name] = values
	}
}

// A sentBody is a request's body on its way to the server.
type sentBody struct {
	x         *roundTrip
	attempt   int
	from      io.Reader
	length    int64 // -1: not known
	bytesRead atomic.Int64
	reading   atomic.Bool // set before stopped is read, as stop does it the other way round: one sees the other
	stopped   atomic.Bool
	ended     atomic.Bool // all was read

	mu      sync.Mutex // held while reading
	expects bool       // the caller waits for 100 (Continue)
	err     error      // of the caller's side
}

var errBodyStopped = errors.New("the request is over")

func (b *sentBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading.Store(true)
	defer b.reading.Store(false)
	if b.stopped.Load() {
		return 0, errBodyStopped
	}
	if b.expects {
		// Reading would have net/http write it, without regard to other informational responses that are being written.
		b.expects = false
		b.x.write1xx(b.attempt, http.StatusContinue, nil)
	}
	b.x.timer.Reset(b.x.idleTimeout)
	n, err := b.from.Read(p)
	b.bytesRead.Add(int64(n))
	b.ended.Store(err == io.EOF)
	switch {
	case err == nil:
		b.x.timer.Reset(b.x.idleTimeout)
	case err == io.EOF && !b.x.delivering.Load():
		// From here the transport's own timeout for the response counts, once the last bytes are written: a server that does
		// not read them has as long as for any others.
		b.x.timer.Reset(b.x.idleTimeout + b.x.headerTimeout)
	case err != io.EOF && (!b.stopped.Load() || errors.Is(err, io.ErrUnexpectedEOF)):
		b.err = err
	}
	return n, err
}

// isComplete reports whether the body has been read to its end.
func (b *sentBody) isComplete() bool { return b.ended.Load() || b.bytesRead.Load() == b.length }

// closeUnread has the caller's connection closed after the response if the request's body may be left unread. net/http would
// read on after the handler, and with full duplex a body that ends there makes it panic on the connection's next request.
func (rt *roundTrip) closeUnread() {
	if rt.body != nil && rt.r.ProtoMajor == 1 && !rt.body.isComplete() {
		rt.w.Header().Set("Connection", "close")
	}
}

// Close leaves the caller's body to the server that reads it.
func (b *sentBody) Close() error { return nil }

// stop has nobody read the body any more. A handler that returns while somebody does would wait for the caller. The
// caller's connection is lost by that, so it is spared when the body is complete and only its end is being read.
func (b *sentBody) stop(control *http.ResponseController) {
	b.stopped.Store(true)
	if b.reading.Load() && b.bytesRead.Load() != b.length {
		_ = control.SetReadDeadline(past)
	}
	b.mu.Lock() // waits for a Read in progress
	defer b.mu.Unlock()
}

// fault is what the caller's side did wrong, if that is why the server did not answer.
func (b *sentBody) fault(err error) error {
	if errors.Is(err, errCallerStalled) {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return &requestError{b.err, true}
	}
	return err
}

// A requestError is a request that cannot be sent, because of its body or for another reason.
type requestError struct {
	err  error
	body bool // it could not be read
}

func (e *requestError) Error() string {
	if e.body {
		return "reading the request's body: " + e.err.Error()
	}
	return e.err.Error()
}
func (e *requestError) Unwrap() error { return e.err }
