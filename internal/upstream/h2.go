package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// h2Pool is the connections to a server that speaks HTTP/2. roundTrip sends a request at most once: the pool of
// http.Transport repeats requests by itself, without end where a server answers each with GOAWAY, and retries are the
// group's to count and to bound.
type h2Pool struct {
	server *server
	wire   *http.Transport // makes HTTP/2 of connections; requests do not pass it
	secure *tlsDialer      // nil: without TLS

	http1Until atomic.Int64 // since the group was born: the server chose HTTP/1.1 in its last handshake

	mu      sync.Mutex // guards the following
	conns   []*http.ClientConn
	dialing *h2Dial // nil: none in progress
}

// h2Dial is a connection in the making. Requests that find no room on the others wait for it.
type h2Dial struct {
	done chan struct{} // closed when the following are set
	conn *http.ClientConn
	err  error
}

// http1For is how long a server that chose HTTP/1.1 is not offered HTTP/2 again.
const http1For = 10 * time.Minute

var (
	errHTTP1     = errors.New("it chose HTTP/1.1")
	errSettings  = errors.New("it sent no HTTP/2 settings in time")
	errEndsEarly = errors.New("it ended the connection before a request could be sent")
)

func newH2Pool(s *server, secure *tlsDialer) *h2Pool {
	p := &h2Pool{server: s, secure: secure, wire: s.transport()}
	p.wire.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return ctx.Value(h2ConnKey{}).(net.Conn), nil
	}
	p.wire.Protocols.SetUnencryptedHTTP2(true) // TLS is below, in the connection
	p.wire.HTTP2 = &http.HTTP2Config{
		SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, WriteByteTimeout: s.group.cfg.Timeouts.Idle,
		MaxReceiveBufferPerStream: h2Window, MaxReceiveBufferPerConnection: h2ConnWindow,
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
		switch {
		case err == nil:
			return res, nil
		case wrote:
			return nil, h2Fault(err)
		case r.Context().Err() != nil || errors.Is(err, errIdle):
			return nil, err
		case errors.Unwrap(err) != nil: // it could not be encoded; connections fail with plain errors
			return nil, h2Fault(&requestError{err})
		case !reused || again:
			return nil, &dialError{err}
		}
		// The server has closed a connection that was not in use, as it may at any time. Nothing was sent.
	}
}

// ask sends the request on a connection, and reports whether any of it was written.
func (p *h2Pool) ask(conn *http.ClientConn, r *http.Request) (res *http.Response, wrote bool, err error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	var written atomic.Bool
	// A server that allows fewer streams than before may leave no room for this one, and the connection waits for it.
	slow := time.AfterFunc(p.server.group.cfg.Timeouts.Header, func() {
		if !written.Load() {
			cancel(errIdle)
		}
	})
	res, err = conn.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { written.Store(true); slow.Stop() },
	})))
	slow.Stop()
	if err != nil && context.Cause(ctx) == errIdle { //nolint:errorlint // the very value
		err = errIdle
	}
	return res, written.Load(), err
}

// h2Fault sorts an error that came instead of a response.
func h2Fault(err error) error {
	var stream http2.StreamError
	switch text := err.Error(); {
	case errors.As(err, &stream) && stream.Code == http2.ErrCodeRefusedStream,
		strings.Contains(text, "http2: Transport received"): // GOAWAY with a last stream before this one
		return &unprocessedError{err}
	case errors.As(err, &stream) && (stream.Code == http2.ErrCodeProtocol || stream.Code == http2.ErrCodeEnhanceYourCalm) &&
		stream.Cause != nil && stream.Cause.Error() == "received from peer":
		// So servers reject a request that is malformed (RFC 9113, 8.1.1), or has more fields than they take (Node).
		return &requestError{err}
	case strings.Contains(text, "header list larger than peer's advertised limit"):
		return &requestError{fmt.Errorf("%w: %w", errHeadTooLarge, err)}
	}
	return err
}

// get reserves a stream on a connection with room, or on a new one.
func (p *h2Pool) get(ctx context.Context) (conn *http.ClientConn, reused bool, err error) {
	for {
		p.mu.Lock()
		p.conns = slices.DeleteFunc(p.conns, func(c *http.ClientConn) bool { return c.Err() != nil })
		for _, c := range p.conns {
			if c.Reserve() == nil {
				p.mu.Unlock()
				return c, true, nil
			}
		}
		d, mine := p.dialing, p.dialing == nil
		if mine {
			d = &h2Dial{done: make(chan struct{})}
			p.dialing = d
			go p.dial(context.WithoutCancel(ctx), d) // others may wait for it
		}
		p.mu.Unlock()
		select {
		case <-d.done:
		case <-ctx.Done():
			if mine {
				go func() {
					if <-d.done; d.err == nil {
						d.conn.Release()
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

// dial makes a connection, with a stream reserved for the request that it is made for.
func (p *h2Pool) dial(ctx context.Context, d *h2Dial) {
	d.conn, d.err = p.connect(ctx)
	if d.err == nil && d.conn.Reserve() != nil {
		d.conn.Close()
		d.err = &dialError{errEndsEarly}
	}
	p.mu.Lock()
	p.dialing = nil
	if d.err == nil {
		p.conns = append(p.conns, d.conn)
	}
	p.mu.Unlock()
	close(d.done)
}

// connect makes a connection and waits for the server's settings: how many streams it allows, and how large a header.
func (p *h2Pool) connect(ctx context.Context) (*http.ClientConn, error) {
	conn, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	settled := &settledConn{Conn: conn, settled: make(chan struct{})}
	c, err := p.wire.NewClientConn(context.WithValue(ctx, h2ConnKey{}, net.Conn(settled)), "http", p.server.url.Host)
	if err != nil {
		conn.Close()
		return nil, &dialError{err}
	}
	late := time.NewTimer(p.server.group.cfg.Timeouts.Connect)
	defer late.Stop()
	select {
	case <-settled.settled:
		return c, nil
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

// close ends connections that are not in use. The others are not used again, and end by themselves.
func (p *h2Pool) close() {
	p.mu.Lock()
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for _, c := range conns {
		if c.InFlight() == 0 {
			c.Close()
		}
	}
}

type h2ConnKey struct{}

// settledConn notices when the reader has taken in the first frame, which is the server's settings.
type settledConn struct {
	net.Conn
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

func (c *settledConn) settle() {
	c.done, c.head = true, nil
	close(c.settled)
}
