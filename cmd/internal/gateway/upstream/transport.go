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

// roundTripTransport sends a request without the pool, and waits for the head of its response.
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
		for rt.writeNext1xxLocked() { // in order, and before the response
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
	switch rt.stalled { // it no longer changes after stopSending
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

// request returns the request to the server.
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
		out.Trailer = r.Trailer // its values are set at the end of the body
		// Servers may respond while the caller still sends.
		_ = rt.control.EnableFullDuplex()
	}
	return out
}

// A sentBody is a request's body on its way to the server.
type sentBody struct {
	x         *roundTrip
	attempt   int
	from      io.Reader
	length    int64 // -1: unknown
	bytesRead atomic.Int64
	reading   atomic.Bool // Read sets it before it loads stopped, and stop does the reverse, so that at least one sees the other
	stopped   atomic.Bool
	ended     atomic.Bool // it was read completely

	mu      sync.Mutex // held while reading
	expects bool       // the caller waits for 100 Continue
	err     error      // error of reading from the caller
}

var errBodyStopped = errors.New("the request has ended")

func (b *sentBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading.Store(true)
	defer b.reading.Store(false)
	if b.stopped.Load() {
		return 0, errBodyStopped
	}
	if b.expects {
		// Otherwise net/http would send it on Read, concurrently with other informational responses.
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
		// The transport's response header timeout starts when the last bytes are written. The idle timeout still applies to
		// writing them.
		b.x.timer.Reset(timeouts.Idle + timeouts.Header)
	case err != io.EOF && (!b.stopped.Load() || errors.Is(err, io.ErrUnexpectedEOF)):
		b.err = err
	}
	return n, err
}

// isComplete reports whether the body has been read to its end.
func (b *sentBody) isComplete() bool { return b.ended.Load() || b.bytesRead.Load() == b.length }

// Close does nothing: the HTTP server closes the caller's body.
func (b *sentBody) Close() error { return nil }

// stop ends reading of the body. If a read is in progress, it is interrupted, because the handler would otherwise wait for the
// caller. This breaks the caller's connection, so it is not done if the body is complete and only its end is being read.
func (b *sentBody) stop(control *http.ResponseController) {
	b.stopped.Store(true)
	if b.reading.Load() && b.bytesRead.Load() != b.length {
		_ = control.SetReadDeadline(past)
	}
	b.mu.Lock() // waits for a Read in progress
	defer b.mu.Unlock()
}

// fault returns the error of reading from the caller if there was one, because it caused the missing response, and otherwise err.
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

// A requestError is the error of a request that cannot be sent.
type requestError struct {
	err  error
	body bool // reading the body failed
}

func (e *requestError) Error() string {
	if e.body {
		return "reading the request's body: " + e.err.Error()
	}
	return e.err.Error()
}
func (e *requestError) Unwrap() error { return e.err }
