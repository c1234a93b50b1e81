package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// http1For is how long a server that chose HTTP/1.1 is not offered HTTP/2 again.
const http1For = 10 * time.Minute

var (
	errHTTP1     = errors.New("it chose HTTP/1.1")
	errSettings  = errors.New("it sent no HTTP/2 settings in time")
	errEndsEarly = errors.New("it ended the connection, or allowed no stream on it, before a request could be sent")
	errNoRoom    = errors.New("it allowed no further stream on the connection in time")

	errLate error = timeoutError("the response did not begin in time")
)

// roundTrip sends a request and returns the head of its response. The error is a dialError if nothing was sent, errHTTP1 if
// the server does not speak HTTP/2, an unprocessedError if the server said that it did nothing, and a requestError if the
// request is at fault.
func (p *h2Pool) roundTrip(r *h2Request) (*http.Response, error) {
	for again := false; ; again = true {
		if time.Duration(p.http1Until.Load()) > time.Since(p.server.group.startedAt) {
			return nil, errHTTP1
		}
		use, reused, err := p.get(r)
		if err != nil {
			return nil, err
		}
		reads := use.conn.wire.reads.Load()
		res, wrote, err := p.ask(use)
		if err == nil {
			use.answered()
			end := sync.OnceValue(res.Body.Close)
			// The client of golang.org/x/net/http2 does not look at the context while the request's body waits for the window.
			res.Body = &h2Body{res.Body, use, end, context.AfterFunc(r.Context(), func() { _ = end() })}
			return res, nil
		}
		if use.frozen(err, reads) {
			use.conn.retire()
		}
		use.end()
		switch {
		case r.Context().Err() != nil || errors.Is(err, errLate):
			return nil, err
		case wrote:
			return nil, use.conn.fault(h2Fault(err))
		case errors.Unwrap(err) != nil && strings.HasPrefix(err.Error(), "http2: "): // it could not be encoded
			return nil, h2Fault(&requestError{err: err})
		case !reused || again:
			return nil, &dialError{err}
		}
		// The server has closed a connection that was not in use, as it may at any time, or has no more room on it. Nothing
		// was sent.
	}
}

// ask sends the request on a connection, and reports whether any of it may have been written.
//
// All waiting is bounded here: the client of golang.org/x/net/http2 ends a request that is over only after it has told the
// server so, which waits for as long as the server reads nothing. It returns at once when the context ends.
func (p *h2Pool) ask(r *h2Use) (res *http.Response, wrote bool, err error) {
	conn := r.conn
	timeouts := &p.server.group.cfg.Timeouts
	ctx, cancel := context.WithCancelCause(r.Context())
	const (
		waits = iota
		sends
		gaveUp
	)
	var state atomic.Int32
	// A server that allows fewer streams than before may leave no room for this one, and the connection waits for it.
	room := after(timeouts.Connect, func() {
		if state.CompareAndSwap(waits, gaveUp) {
			cancel(errNoRoom)
		}
	})
	defer room.end()
	late := after(timeouts.Header, func() { cancel(errLate) })
	defer late.end()
	res, err = conn.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaderField: func(string, []string) { // encoded, and about to be written
			if !state.CompareAndSwap(waits, sends) && state.Load() == gaveUp {
				conn.Close() // it is sent elsewhere; requests of clients that leave are not, and others share the connection
			}
		},
		WroteHeaders: func() {
			if r.body != nil {
				late.Stop() // the round trip watches over its body
			}
		},
		WroteRequest: func(httptrace.WroteRequestInfo) {
			late.Reset(timeouts.Header)
			r.sent()
		},
	})))
	if err != nil && r.Context().Err() == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return res, state.Load() == sends, err
}

// h2Fault sorts an error that came instead of a response.
func h2Fault(err error) error {
	var stream http2.StreamError
	switch text := err.Error(); {
	case errors.As(err, &stream) && stream.Code == http2.ErrCodeRefusedStream,
		strings.Contains(text, "http2: Transport received"): // GOAWAY with a last stream before this one
		return &unprocessedError{err, strings.Contains(text, "ErrCode")}
	case errors.As(err, &stream) && (stream.Code == http2.ErrCodeProtocol || stream.Code == http2.ErrCodeEnhanceYourCalm) &&
		stream.Cause != nil && stream.Cause.Error() == "received from peer":
		// So servers reject a request that is malformed (RFC 9113, 8.1.1), or has more fields than they take (Node).
		return &requestError{err: err}
	case strings.Contains(text, "header list larger than peer's advertised limit"):
		return &requestError{err: fmt.Errorf("%w: %w", errHeadTooLarge, err)}
	}
	return err
}
