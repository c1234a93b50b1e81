package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
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
// A server has two. Most requests share connections, of the first. Those that can hold up what they share a connection with
// travel alone, on connections of the second: requests whose head is longer than all servers accept, because many servers
// end the connection for one, and requests whose body may use up the connection's window, if the server does not read it,
// for which the bodies of all others on the connection wait.
type h2Pool struct {
	server *server
	own    bool            // requests travel alone, see ownLocked
	wire   *http.Transport // makes HTTP/2 of connections; requests do not pass it
	secure *tlsDialer      // nil: without TLS

	http1Until atomic.Int64 // since the group was born: the server chose HTTP/1.1 in its last handshake
	held       atomic.Int64 // bytes of bodies on shared connections, at most sharedBodies

	mu     sync.Mutex // guards the following
	conns  []*h2Conn
	dials  []*h2Dial // in progress
	closed bool      // connections end when they are not in use
}

const (
	// maxOwn is the number of connections to a server whose requests travel alone, and ownShare how many of them are for
	// requests of one client address. Beyond that, requests share them, those of an address its own.
	maxOwn   = 64
	ownShare = maxOwn / 4
	// sharedBodies bounds the bodies that the server may not have read on connections that requests share. It is half of the
	// smallest window of a connection that there is.
	sharedBodies = 32 << 10
)

// h2Conn is a connection of a pool.
type h2Conn struct {
	*http.ClientConn
	pool *h2Pool
	wire *settledConn
	lost atomic.Bool // a request that ended with the connection has been counted as a failure of the server

	// The pool's mutex guards the following:
	users   int // requests
	retired bool
	busy    int          // of the users, those that travel alone
	unsent  int          // of those, the ones whose body is not sent completely
	held    int64        // bytes of the bodies of users that are not busy any more
	from    netip.Prefix // whose request made it busy
}

// An h2Request is a request for a pool.
type h2Request struct {
	*http.Request
	body  *sentBody    // nil: there is none, or all of it is here
	small int64        // its length, if all of it is here
	from  netip.Prefix // the client's address; zero: not known
}

// An h2Use is a request on a connection. The pool's mutex guards it.
type h2Use struct {
	*h2Request
	conn                     *h2Conn
	busy, unsent, unanswered bool
	over                     bool
	held                     int64
}

func (c *h2Conn) useLocked(r *h2Request) *h2Use {
	u := &h2Use{h2Request: r, conn: c}
	c.users++
	if c.pool.own {
		if c.busy == 0 {
			c.from = r.from
		}
		u.busy, u.unsent, u.unanswered = true, true, true
		c.busy++
		c.unsent++
	}
	return u
}

// sent is called when all of the request has been written.
func (u *h2Use) sent() {
	u.conn.pool.mu.Lock()
	defer u.conn.pool.mu.Unlock()
	if u.unsent {
		u.unsent = false
		u.conn.unsent--
	}
	u.settleLocked()
}

// answered is called when the request has a response.
func (u *h2Use) answered() {
	u.conn.pool.mu.Lock()
	defer u.conn.pool.mu.Unlock()
	u.unanswered = false
	u.settleLocked()
}

// settleLocked lets others use the connection if the request cannot hold them up any more: the server has accepted its head,
// and if it does not read the body, that is small.
func (u *h2Use) settleLocked() {
	if !u.busy || u.unsent || u.unanswered {
		return
	}
	held := u.small
	if u.body != nil {
		held = u.body.got.Load()
	}
	if held <= smallBody {
		u.busy, u.held = false, held
		u.conn.busy--
		u.conn.held += held
	}
}

// end ends the use of the connection, and reports whether it had not ended.
func (u *h2Use) end() bool {
	c := u.conn
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.over {
		return false
	}
	u.over = true
	if u.unsent {
		u.unsent = false
		c.unsent--
	}
	if u.busy {
		u.busy = false
		c.busy--
	}
	c.held -= u.held
	if c.users--; c.users == 0 && (p.closed || c.retired) {
		p.removeLocked(c)
		go c.Close() // which may wait for the server
	}
	return true
}

// hold reports whether a body of a length, all of which is here, can be on a connection that requests share, until letGo.
func (p *h2Pool) hold(n int64) bool {
	if p.held.Add(n) <= sharedBodies {
		return true
	}
	p.held.Add(-n)
	return n == 0
}

func (p *h2Pool) letGo(n int64) { p.held.Add(-n) }

// frozen reports whether the connection may be why the request ran out of time, which ended with an error and began when the
// connection had been read from so many times. A server that is only slow loses one connection in timeouts.header that way.
// Time that others set may be much shorter, and speaks against a connection on which nothing comes alone.
func (u *h2Use) frozen(err error, reads int64) bool {
	if u.Context().Err() != nil {
		err = context.Cause(u.Context())
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return u.conn.wire.reads.Load() == reads
	}
	return errors.Is(err, errLate) || errors.Is(err, errIdle)
}

// retire has no further requests use the connection, which ends with the last of those that do.
func (c *h2Conn) retire() {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.retired = true
	c.pool.removeLocked(c)
}

func (p *h2Pool) removeLocked(c *h2Conn) {
	p.conns = slices.DeleteFunc(p.conns, func(other *h2Conn) bool { return other == c })
}

// A lostError ended a request with the connection that carried it, and all others on it.
type lostError struct {
	conn *h2Conn
	err  error
}

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

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
	io.Reader
	use   *h2Use
	close func() error // once: it gives back the window each time
	stop  func() bool  // has the end of the request's context not close it any more
}

func (b *h2Body) Close() error {
	b.stop()
	err := b.close()
	if p := b.use.conn.pool; b.use.end() && !p.own {
		p.letGo(b.use.small)
	}
	return err
}

func (b *h2Body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	switch ctx := b.use.Context(); {
	case err == nil || err == io.EOF:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		err = b.use.conn.fault(err)
	}
	return n, err
}

// h2Dial is a connection in the making. Requests that find no room on the others wait for it.
type h2Dial struct {
	from netip.Prefix
	done chan struct{} // closed when the following are set
	use  *h2Use        // by the request that it is made for
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
func (p *h2Pool) roundTrip(r *h2Request) (*http.Response, error) {
	for again := false; ; again = true {
		if time.Duration(p.http1Until.Load()) > time.Since(p.server.group.born) {
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
				late.Stop() // the exchange watches over its body
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

// get reserves a stream on a connection, or on a new one.
func (p *h2Pool) get(r *h2Request) (use *h2Use, reused bool, err error) {
	ctx := r.Context()
	for {
		p.mu.Lock()
		p.pruneLocked()
		find := p.sharedLocked
		if p.own {
			find = p.ownLocked
		}
		c, d := find(r)
		if c != nil {
			use = c.useLocked(r)
			p.mu.Unlock()
			return use, true, nil
		}
		mine := d == nil
		if mine {
			d = &h2Dial{from: r.from, done: make(chan struct{})}
			p.dials = append(p.dials, d)
			go p.dial(context.WithoutCancel(ctx), d, r) // others may wait for it
		}
		p.mu.Unlock()
		select {
		case <-d.done:
		case <-ctx.Done():
			if mine {
				go func() {
					if <-d.done; d.err == nil {
						d.use.conn.Release()
						d.use.end()
					}
				}()
			}
			return nil, false, context.Cause(ctx)
		}
		switch {
		case d.err != nil:
			return nil, false, d.err
		case mine:
			return d.use, false, nil
		}
	}
}

// pruneLocked forgets connections that have ended, or can carry no further request.
func (p *h2Pool) pruneLocked() {
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
}

// sharedLocked reserves a stream on one of the connections, or returns the one in the making that may have one, or nothing if
// there should be another.
func (p *h2Pool) sharedLocked(*h2Request) (*h2Conn, *h2Dial) {
	for _, c := range p.conns {
		if c.Reserve() == nil {
			return c, nil
		}
	}
	if n := len(p.dials); n > 0 {
		return nil, p.dials[n-1]
	}
	return nil, nil
}

// ownLocked is sharedLocked for requests that travel alone: on a connection that is not busy, or a new one, as long as there
// are not too many.
func (p *h2Pool) ownLocked(r *h2Request) (*h2Conn, *h2Dial) {
	have := 0 // of the client
	for _, c := range p.conns {
		if c.busy > 0 && c.from == r.from {
			have++
		}
	}
	for _, d := range p.dials {
		if d.from == r.from {
			have++
		}
	}
	among := func(netip.Prefix) bool { return true }
	if r.from.IsValid() && have >= ownShare {
		among = func(from netip.Prefix) bool { return from == r.from }
	} else {
		for _, c := range p.conns {
			if c.busy == 0 && c.held <= smallBody && c.Reserve() == nil {
				return c, nil
			}
		}
		if len(p.conns)+len(p.dials) < maxOwn {
			return nil, nil
		}
	}
	bounds.OwnConnections.Reached()
	var best *h2Conn
	for _, c := range p.conns {
		if c.busy > 0 && among(c.from) && (best == nil || c.unsent < best.unsent || c.unsent == best.unsent && c.busy < best.busy) && c.Reserve() == nil {
			if best != nil {
				best.Release()
			}
			best = c
		}
	}
	if best != nil {
		return best, nil
	}
	for _, d := range slices.Backward(p.dials) {
		if among(d.from) {
			return nil, d
		}
	}
	return nil, nil
}

// dial makes a connection, with a stream reserved for the request that it is made for.
func (p *h2Pool) dial(ctx context.Context, d *h2Dial, r *h2Request) {
	conn, err := p.connect(ctx)
	if err == nil && conn.Reserve() != nil {
		conn.Close()
		err = &dialError{errEndsEarly}
	}
	p.mu.Lock()
	p.dials = slices.DeleteFunc(p.dials, func(other *h2Dial) bool { return other == d })
	if d.err = err; err == nil {
		d.use = conn.useLocked(r)
		p.conns = append(p.conns, conn)
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
		return &h2Conn{ClientConn: c, pool: p, wire: settled}, nil
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
	reads   atomic.Int64

	// Of the one goroutine that reads:
	done bool
	head []byte // the first 3 bytes: the length of the frame
	got  int
}

func (c *settledConn) Read(b []byte) (int, error) {
	defer c.reads.Add(1)
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
