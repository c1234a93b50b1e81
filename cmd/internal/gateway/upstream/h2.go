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

// http1For is the time for which a server that chose HTTP/1.1 is not offered HTTP/2 again.
const http1For = 10 * time.Minute

var (
	errHTTP1     = errors.New("server chose HTTP/1.1")
	errSettings  = errors.New("server sent no HTTP/2 settings in time")
	errEndsEarly = errors.New("server closed the connection, or allowed no streams, before a request could be sent")
	errNoRoom    = errors.New("server allowed no further stream on the connection in time")

	errLate error = timeoutError("response did not start in time")
)

// roundTrip sends a request and returns the head of its response. The error is a dialError if nothing was sent, errHTTP1 if
// the server does not support HTTP/2, an unprocessedError if the server declared the request unprocessed, and a requestError
// if the request caused it.
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
			// The client of golang.org/x/net/http2 ignores the context while the request's body waits for the flow-control window.
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
		case errors.Unwrap(err) != nil && strings.HasPrefix(err.Error(), "http2: "): // the request could not be encoded
			return nil, h2Fault(&requestError{err: err})
		case !reused || again:
			return nil, &dialError{err}
		}
		// The server has closed an idle connection, as it may at any time, or allows no more streams on it. Nothing was sent.
	}
}

// ask sends the request on a connection. wrote reports whether a part of it may have been written.
//
// It applies all timeouts itself by cancelling the context, on which the client of golang.org/x/net/http2 returns at once.
// With its own timeouts the client ends a request only after it has sent RST_STREAM, which blocks while the server does not
// read.
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
	// A server may have lowered the maximum number of streams, so that the request waits for a stream.
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
				conn.Close() // the request is sent to another server; not for disconnected clients, because others share the connection
			}
		},
		WroteHeaders: func() {
			if r.body != nil {
				late.Stop() // the round trip has an idle timer for the body
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

// h2Fault classifies the error of a request without a response.
func h2Fault(err error) error {
	var stream http2.StreamError
	switch text := err.Error(); {
	case errors.As(err, &stream) && stream.Code == http2.ErrCodeRefusedStream,
		strings.Contains(text, "http2: Transport received"): // GOAWAY whose last stream is before this one
		return &unprocessedError{err, strings.Contains(text, "ErrCode")}
	case errors.As(err, &stream) && (stream.Code == http2.ErrCodeProtocol || stream.Code == http2.ErrCodeEnhanceYourCalm) &&
		stream.Cause != nil && stream.Cause.Error() == "received from peer":
		// Servers reject malformed requests this way (RFC 9113, 8.1.1), and requests with too many fields (Node).
		return &requestError{err: err}
	case strings.Contains(text, "header list larger than peer's advertised limit"):
		return &requestError{err: fmt.Errorf("%w: %w", errHeadTooLarge, err)}
	}
	return err
}
