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

	slow       *slowWriters // nil: what the server sends ahead is not held here
	resend     resend
	idle       time.Duration
	header     time.Duration // until the response begins
	timer      *watch        // made when it is first needed
	delivering atomic.Bool
	passing    atomic.Bool // a piece of the response is being written to the caller

	interims struct {
		mu      sync.Mutex // guards the following; it is not held while writing
		waiting []interim
	}

	// mu guards the following, and w and control against callbacks on other goroutines (timers, http.Transport): those hold
	// it, and return at once unless the turn is still their own.
	mu      sync.Mutex
	turn    int  // of the attempt in progress; it changes when one begins and when one ends
	begun   bool // the answer itself: nothing can come before it any more
	read    bool // small has been
	stalled bool // the caller stopped sending
	idled   bool // nothing moved for too long
	unread  bool // because the caller did not read
}

// begin begins an attempt.
func (x *exchange) begin() { x.over() }

// over ends an attempt: its callbacks may still run, also after the handler has returned, when the connections serve other
// requests and net/http panics on calls of the writer.
func (x *exchange) over() {
	x.mu.Lock()
	x.turn++
	x.mu.Unlock()
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
func (x *exchange) checkStatus(res *http.Response) error {
	switch code := res.StatusCode; {
	case code < 100 || code > 999:
		return errStatus
	case code == http.StatusSwitchingProtocols && (x.upgrade == "" || !sameProtocol(x.upgrade, res.Header)):
		return errProtocol
	}
	return nil
}

// touch says that something moved: nothing may for longer than idle.
func (x *exchange) touch() {
	if x.timer == nil {
		turn := x.turn
		x.timer = after(x.idle, func() { x.expire(turn, false) })
		return
	}
	x.timer.Reset(x.idle)
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
func (x *exchange) expire(turn int, slow bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if turn != x.turn {
		return
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
		x.unread = slow || x.passing.Load()
		// A caller that does not read holds up the writer, which learns of it this way alone.
		_ = x.control.SetWriteDeadline(past)
	}
}

// past is a deadline that ends what is waiting now.
var past = time.Unix(1, 0)

// end lets go of everything.
func (x *exchange) end() {
	x.stopSending()
	if x.line == nil {
		x.res.Body.Close() // not before the request's body: the transport would wait for that
	} else {
		x.release(x.whole && !x.res.Close)
	}
}

// stopSending ends the attempt, and what of it is in progress elsewhere.
func (x *exchange) stopSending() {
	x.over()
	if x.cancel != nil {
		x.cancel(nil)
	}
	if x.body != nil {
		x.body.stop(&x.control)
	}
	if x.timer != nil {
		x.timer.end() // after the body, which starts it anew
		x.timer = nil
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
	head, err := checkHead(x.r)
	if err != nil {
		return &failure{kind: failRequest, err: err}
	}
	turn := x.turn
	ctx, cancel := context.WithCancelCause(x.r.Context())
	x.cancel = cancel
	var answered atomic.Bool
	out := x.request(s).WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotFirstResponseByte: func() { answered.Store(true) },
		Got1xxResponse:       func(code int, h textproto.MIMEHeader) error { return x.informed(turn, code, h) },
	}))
	if x.body != nil {
		x.touch()
	}
	res, err := s.roundTrip(out, head, cancel, &x.resend)
	if err == nil {
		if err = x.checkStatus(res); err != nil {
			res.Body.Close()
		}
	}
	if err == nil {
		x.mu.Lock()
		for x.informNextLocked() { // in their order, and before the response
		}
		x.begun = true
		x.mu.Unlock()
		x.res = res
		return nil
	}
	if strings.Contains(err.Error(), "server response headers exceeded") { // http.Transport's error has no type
		bounds.UpstreamHeader.Reached()
	}
	x.stopSending()
	switch { // which does not change any more
	case x.stalled:
		err = errStalled
	case x.idled:
		err = errIdle
	}
	if x.body != nil {
		err = x.body.fault(err)
	}
	f := failureOf(x.r, err, answered.Load())
	x.excuse(f, head)
	return f
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
		x.body = &sentBody{x: x, turn: x.turn, from: r.Body, length: r.ContentLength}
		x.body.expects = r.ProtoMajor == 1 && r.ProtoMinor > 0 && httpguts.HeaderValuesContainsToken(r.Header["Expect"], "100-continue")
		out.Body = x.body
		out.Trailer = r.Trailer // its values come with the end of the body
		// Servers may answer while the caller still sends.
		_ = x.control.EnableFullDuplex()
	}
	return out
}

// informs reports whether an informational response is handed on to the caller.
func (x *exchange) informs(code int) (bool, error) {
	switch code {
	case http.StatusContinue:
		return false, nil // reading the caller's body tells it so
	case http.StatusSwitchingProtocols:
		return false, errProtocol // in HTTP/2, where it is one of these
	}
	return x.r.ProtoAtLeast(1, 1), nil // a caller of HTTP/1.0 would take it for the response
}

// An interim is an informational response that waits to be written to the caller.
type interim struct {
	turn, code int
	header     textproto.MIMEHeader
}

// maxInterims is the number of those. Further ones are dropped: none is needed.
const maxInterims = 8

// informed hands on an informational response. It is called where a connection to the server is read, which others may share,
// and so waits for nothing.
func (x *exchange) informed(turn, code int, header textproto.MIMEHeader) error {
	if ok, err := x.informs(code); !ok {
		return err
	}
	x.interims.mu.Lock()
	defer x.interims.mu.Unlock()
	if len(x.interims.waiting) == maxInterims {
		bounds.Interims.Reached()
		return nil
	}
	x.interims.waiting = append(x.interims.waiting, interim{turn, code, header})
	if len(x.interims.waiting) == 1 {
		go func() {
			for more := true; more; {
				x.mu.Lock()
				more = x.informNextLocked()
				x.mu.Unlock()
			}
		}()
	}
	return nil
}

// informNextLocked writes the next informational response, and reports whether there was one.
func (x *exchange) informNextLocked() bool {
	x.interims.mu.Lock()
	if len(x.interims.waiting) == 0 {
		x.interims.mu.Unlock()
		return false
	}
	next := x.interims.waiting[0]
	x.interims.waiting = x.interims.waiting[1:]
	x.interims.mu.Unlock()
	x.informLocked(next.turn, next.code, next.header)
	return true
}

// inform writes an informational response to the caller. A caller that does not read it is given up after x.idle: the
// attempt cannot end while it is being written.
func (x *exchange) inform(turn, code int, header textproto.MIMEHeader) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.informLocked(turn, code, header)
}

func (x *exchange) informLocked(turn, code int, header textproto.MIMEHeader) {
	if turn != x.turn || x.begun {
		return
	}
	h := x.w.Header()
	kept := h.Clone()
	clear(h)
	for name, values := range header {
		h[name] = values
	}
	StripHopByHop(h)
	// With it net/http's HTTP/2 server writes a copy. It would read h in the background otherwise, after WriteHeader has
	// returned because the caller left, and iterating over a map that is written ends the process.
	h["Content-Length"] = nil
	_ = x.control.SetWriteDeadline(time.Now().Add(x.idle))
	x.w.WriteHeader(code)
	_ = x.control.SetWriteDeadline(time.Time{})
	clear(h)
	for name, values := range kept {
		h[name] = values
	}
}

// A sentBody is a request's body on its way to the server.
type sentBody struct {
	x       *exchange
	turn    int
	from    io.Reader
	length  int64 // -1: not known
	got     atomic.Int64
	reading atomic.Bool // set before stopped is read, as stop does it the other way round: one sees the other
	stopped atomic.Bool
	ended   atomic.Bool // all was read

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
		b.x.inform(b.turn, http.StatusContinue, nil)
	}
	b.x.timer.Reset(b.x.idle)
	n, err := b.from.Read(p)
	b.got.Add(int64(n))
	b.ended.Store(err == io.EOF)
	switch {
	case err == nil:
		b.x.timer.Reset(b.x.idle)
	case err == io.EOF && !b.x.delivering.Load():
		// From here the transport's own timeout for the response counts, once the last bytes are written: a server that does
		// not read them has as long as for any others.
		b.x.timer.Reset(b.x.idle + b.x.header)
	case err != io.EOF && (!b.stopped.Load() || errors.Is(err, io.ErrUnexpectedEOF)):
		b.err = err
	}
	return n, err
}

// whole reports whether the body has been read to its end.
func (b *sentBody) whole() bool { return b.ended.Load() || b.got.Load() == b.length }

// closeUnread has the caller's connection closed after the response if the request's body may be left unread. net/http would
// read on after the handler, and with full duplex a body that ends there makes it panic on the connection's next request.
func (x *exchange) closeUnread() {
	if x.body != nil && x.r.ProtoMajor == 1 && !x.body.whole() {
		x.w.Header().Set("Connection", "close")
	}
}

// Close leaves the caller's body to the server that reads it.
func (b *sentBody) Close() error { return nil }

// stop has nobody read the body any more. A handler that returns while somebody does would wait for the caller. The
// caller's connection is lost by that, so it is spared when the body is complete and only its end is being read.
func (b *sentBody) stop(control *http.ResponseController) {
	b.stopped.Store(true)
	if b.reading.Load() && b.got.Load() != b.length {
		_ = control.SetReadDeadline(past)
	}
	b.mu.Lock() // waits for a Read in progress
	defer b.mu.Unlock()
}

// fault is what the caller's side did wrong, if that is why the server did not answer.
func (b *sentBody) fault(err error) error {
	if errors.Is(err, errStalled) {
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
