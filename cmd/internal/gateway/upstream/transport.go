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

	"golang.org/x/net/http/httpguts"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// roundTripTransport sends a request that does not take the pool, and waits for the head of its answer.
func (rt *roundTrip) roundTripTransport(s *server) *failure {
	head, err := checkHead(rt.r)
	if err != nil {
		return &failure{kind: failRequest, err: err}
	}
	turn := rt.attempt
	ctx, cancel := context.WithCancelCause(rt.r.Context())
	rt.cancel = cancel
	var hasAnswered atomic.Bool
	out := rt.request(s).WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotFirstResponseByte: func() { hasAnswered.Store(true) },
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
		rt.enter(answered)
		rt.mu.Unlock()
		rt.res = res
		return nil
	}
	if strings.Contains(err.Error(), "server response headers exceeded") { // http.Transport's error has no type
		bounds.UpstreamHeader.Reached()
	}
	rt.stopSending()
	switch rt.stalled { // which does not change any more
	case moving:
	case callerStalled:
		err = errCallerStalled
	default:
		err = errIdle
	}
	if rt.body != nil {
		err = rt.body.fault(err)
	}
	f := failureOf(rt.r, err, hasAnswered.Load())
	rt.excuse(f, head)
	return f
}

// request returns what is sent to the server.
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
	timeouts := &b.x.group.cfg.Timeouts
	b.x.timer.Reset(timeouts.Idle)
	n, err := b.from.Read(p)
	b.bytesRead.Add(int64(n))
	b.ended.Store(err == io.EOF)
	switch {
	case err == nil:
		b.x.timer.Reset(timeouts.Idle)
	case err == io.EOF && b.x.in() < delivering:
		// From here the transport's own timeout for the response counts, once the last bytes are written: a server that does
		// not read them has as long as for any others.
		b.x.timer.Reset(timeouts.Idle + timeouts.Header)
	case err != io.EOF && (!b.stopped.Load() || errors.Is(err, io.ErrUnexpectedEOF)):
		b.err = err
	}
	return n, err
}

// isComplete reports whether the body has been read to its end.
func (b *sentBody) isComplete() bool { return b.ended.Load() || b.bytesRead.Load() == b.length }

// Close leaves the caller's body to the server that reads it.
func (b *sentBody) Close() error { return nil }

// stop has the body not read any more. A handler that returns while a read is in progress would wait for the caller. The
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
