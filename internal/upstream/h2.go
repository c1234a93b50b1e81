package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// h2Pool is the connections to a server that speaks HTTP/2. roundTrip sends a request at most once: the pool of
// http.Transport repeats requests by itself, without end where a server answers each with GOAWAY, and retries are the
// group's to count and to bound.
//
// A request whose head is longer than all servers accept travels alone, in a pool of its own: many servers answer it by
// ending the connection, with all that it carries.
type h2Pool struct {
	server *server
	own    bool            // a connection is shared when its requests have been answered, or when there are maxOwn
	wire   *http.Transport // makes HTTP/2 of connections; requests do not pass it
	secure *tlsDialer      // nil: without TLS

	http1Until atomic.Int64 // since the group was born: the server chose HTTP/1.1 in its last handshake

	mu     sync.Mutex // guards the following
	conns  []*h2Conn
	dials  []*h2Dial // in progress
	closed bool      // connections end when they are not in use
}

// maxOwn is the number of connections to a server whose requests do not share one until they have been answered.
const maxOwn = 64

// h2Conn is a connection of a pool.
type h2Conn struct {
	*http.ClientConn
	pool       *h2Pool
	users      int         // requests; the pool's mutex guards it
	unanswered int         // those without a response; likewise
	lost       atomic.Bool // a request that ended with the connection has been counted as a failure of the server
}

// A lostError ended a request with the connection that carried it, and all others on it.
type lostError struct {
	conn *h2Conn
	err  error
}

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// useLocked counts a request.
func (c *h2Conn) useLocked() {
	c.users++
	c.unanswered++
}

// answered is called when a request of the connection has a response, or is over without.
func (c *h2Conn) answered(over bool) {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	c.unanswered--
	if over {
		c.leaveLocked()
	}
}

// leaveLocked ends the use of the connection by a request.
func (c *h2Conn) leaveLocked() {
	if c.users--; c.users == 0 && c.pool.closed {
		c.pool.conns = slices.DeleteFunc(c.pool.conns, func(other *h2Conn) bool { return other == c })
		go c.Close() // which may wait for the server
	}
}

// fault sorts an error of a request that was sent on the connection, or of its response.
func (c *h2Conn) fault(err error) error {
	var stream http2.StreamError
	var timeout net.Error
	if errors.As(err, &stream) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	return &lostError{c, err}
}

// h2Body is the body of a response.
type h2Body struct {
	io.ReadCloser
	conn   *h2Conn
	closed atomic.Bool
}

func (b *h2Body) Close() error {
	err := b.ReadCloser.Close()
	if !b.closed.Swap(true) {
		b.conn.pool.mu.Lock()
		b.conn.leaveLocked()
		b.conn.pool.mu.Unlock()
	}
	return err
}

func (b *h2Body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.conn.fault(err)
	}
	return n, err
}

// h2Dial is a connection in the making. Requests that find no room on the others wait for it.
type h2Dial struct {
	done chan struct{} // closed when the following are set
	conn *h2Conn
	err  error
}

// http1For is how long a server that chose HTTP/1.1 is not offered HTTP/2 again.
const http1For = 10 * time.Minute

var (
	errHTTP1     = errors.New("it chose HTTP/1.1")
	errSettings  = errors.New("it sent no HTTP/2 settings in time")
	errEndsEarly = errors.New("it ended the connection, or allowed no stream on it, before a request could be sent")
	errNoRoom    = errors.New("it allowed no further stream on the connection in time")

	errLate error = timeoutError("the response did not begin in time")
)

func newH2Pool(s *server, secure *tlsDialer, own bool) *h2Pool {
	p := &h2Pool{server: s, own: own, secure: secure, wire: s.transport()}
	p.wire.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return ctx.Value(h2ConnKey{}).(net.Conn), nil
	}
	p.wire.Protocols.SetUnencryptedHTTP2(true) // TLS is below, in the connection
	p.wire.ResponseHeaderTimeout = 0           // see ask
	p.wire.HTTP2 = &http.HTTP2Config{
		SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second,
		MaxReceiveBufferPerStream: h2Window, MaxReceiveBufferPerConnection: h2ConnWindow,
	}
	// Because the copy in Go 1.26's net/http locks itself up when a server exceeds the window of a stream.
	//lint:ignore SA1019 there is no other way to choose it
	if _, err := http2.ConfigureTransports(p.wire); err != nil {
		panic(err) // it is new
	}
	return p
}

// roundTrip sends a request and returns the head of its response. The error is a dialError if nothing was sent, errHTTP1 if
// the server does not speak HTTP/2, an unprocessedError if the server said that it did nothing, and a requestError if the
// request is at fault.
func (p *h2Pool) roundTrip(r *http.Request) (*http.Response, error) {
	for again := false; ; again = true {
		if time.Duration(p.http1Until.Load()) > time.Since(p.server.group.born) {
			return nil, errHTTP1
		}
		conn, reused, err := p.get(r.Context())
		if err != nil {
			return nil, err
		}
		res, wrote, err := p.ask(conn, r)
		conn.answered(err != nil)
		switch {
		case err == nil:
			res.Body = &h2Body{ReadCloser: res.Body, conn: conn}
			return res, nil
		case r.Context().Err() != nil || errors.Is(err, errLate):
			return nil, err
		case wrote:
			return nil, conn.fault(h2Fault(err))
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
func (p *h2Pool) ask(conn *h2Conn, r *http.Request) (res *http.Response, wrote bool, err error) {
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
			if _, streamed := r.Body.(*sentBody); streamed {
				late.Stop() // the exchange watches over its body
			}
		},
		WroteRequest: func(httptrace.WroteRequestInfo) { late.Reset(timeouts.Header) },
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

// get reserves a stream on a connection with room, or on a new one.
func (p *h2Pool) get(ctx context.Context) (conn *h2Conn, reused bool, err error) {
	for {
		p.mu.Lock()
		if c := p.reserveLocked(); c != nil {
			p.mu.Unlock()
			return c, true, nil
		}
		mine := len(p.dials) == 0 || p.own && len(p.conns)+len(p.dials) < maxOwn
		if mine {
			d := &h2Dial{done: make(chan struct{})}
			p.dials = append(p.dials, d)
			go p.dial(context.WithoutCancel(ctx), d) // others may wait for it
		}
		d := p.dials[len(p.dials)-1]
		p.mu.Unlock()
		select {
		case <-d.done:
		case <-ctx.Done():
			if mine {
				go func() {
					if <-d.done; d.err == nil {
						d.conn.Release()
						d.conn.answered(true)
					}
				}()
			}
			return nil, false, context.Cause(ctx)
		}
		switch {
		case d.err != nil:
			return nil, false, d.err
		case mine:
			return d.conn, false, nil
		}
	}
}

// reserveLocked reserves a stream on one of the connections, and returns nil if there should be another connection.
func (p *h2Pool) reserveLocked() *h2Conn {
	p.conns = slices.DeleteFunc(p.conns, func(c *h2Conn) bool {
		switch {
		case c.Err() != nil:
			return true
		case c.users > 0 || c.InFlight() > 0 || c.Available() > 0:
			return false
		}
		// The server allows no stream, or has said that it will end the connection.
		go c.Close() // which may wait for the server
		return true
	})
	var best *h2Conn
	for _, c := range p.conns {
		switch {
		case best != nil && (!p.own || c.unanswered >= best.unanswered):
		case c.Reserve() == nil:
			if best != nil {
				best.Release()
			}
			best = c
		}
	}
	switch {
	case best == nil:
		return nil
	case p.own && best.unanswered > 0 && len(p.conns)+len(p.dials) < maxOwn:
		best.Release()
		return nil
	case p.own && best.unanswered > 0:
		bounds.LargeHeads.Reached()
	}
	best.useLocked()
	return best
}

// dial makes a connection, with a stream reserved for the request that it is made for.
func (p *h2Pool) dial(ctx context.Context, d *h2Dial) {
	d.conn, d.err = p.connect(ctx)
	if d.err == nil && d.conn.Reserve() != nil {
		d.conn.Close()
		d.err = &dialError{errEndsEarly}
	}
	p.mu.Lock()
	p.dials = slices.DeleteFunc(p.dials, func(other *h2Dial) bool { return other == d })
	if d.err == nil {
		d.conn.useLocked()
		p.conns = append(p.conns, d.conn)
	}
	p.mu.Unlock()
	close(d.done)
}

// connect makes a connection and waits for the server's settings: how many streams it allows, and how large a header.
func (p *h2Pool) connect(ctx context.Context) (*h2Conn, error) {
	conn, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	settled := &settledConn{Conn: conn, timeout: p.server.group.cfg.Timeouts.Idle, settled: make(chan struct{})}
	c, err := p.wire.NewClientConn(context.WithValue(ctx, h2ConnKey{}, net.Conn(settled)), "http", p.server.url.Host)
	if err != nil {
		conn.Close()
		return nil, &dialError{err}
	}
	late := time.NewTimer(p.server.group.cfg.Timeouts.Connect)
	defer late.Stop()
	select {
	case <-settled.settled:
		return &h2Conn{ClientConn: c, pool: p}, nil
	case <-late.C:
		c.Close()
		return nil, &dialError{errSettings}
	}
}

func (p *h2Pool) open(ctx context.Context) (net.Conn, error) {
	if p.secure == nil {
		return p.server.dial(ctx, "", "")
	}
	conn, err := p.secure.dial(ctx, "", "")
	if err != nil {
		return nil, err
	}
	if conn.ConnectionState().NegotiatedProtocol != "h2" {
		conn.Close()
		p.http1Until.Store(int64(time.Since(p.server.group.born) + http1For))
		return nil, errHTTP1
	}
	return conn, nil
}

// close ends connections that are not in use, and the others when they are not any more.
func (p *h2Pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.conns {
		if c.users == 0 {
			go c.Close() // which may wait for the server
		}
	}
	p.conns = nil
}

type h2ConnKey struct{}

// settledConn notices when the reader has taken in the first frame, which is the server's settings, and bounds writes.
type settledConn struct {
	net.Conn
	timeout time.Duration
	settled chan struct{}

	// Of the one goroutine that reads:
	done bool
	head []byte // the first 3 bytes: the length of the frame
	got  int
}

func (c *settledConn) Read(b []byte) (int, error) {
	if c.done {
		return c.Conn.Read(b)
	}
	if len(c.head) == 3 && c.got >= 9+int(c.head[0])<<16+int(c.head[1])<<8+int(c.head[2]) {
		c.settle() // all that came before has been taken in
		return c.Conn.Read(b)
	}
	n, err := c.Conn.Read(b)
	c.head = append(c.head, b[:min(n, 3-len(c.head))]...)
	c.got += n
	if err != nil {
		c.settle()
	}
	return n, err
}

// Write ends the connection if the server does not read all of b in time. Everything else that is to be written waits for it,
// and so do those who read responses, because they tell the server.
func (c *settledConn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.timeout))
	n, err := c.Conn.Write(b)
	if err != nil {
		c.Conn.Close()
	}
	return n, err
}

func (c *settledConn) settle() {
	c.done, c.head = true, nil
	close(c.settled)
}
