package upstream

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// h2Pool is a pool of connections to an HTTP/2 server. roundTrip sends a request at most once. The pool of http.Transport is not
// used, because it retries requests itself, without bound if a server responds to each with GOAWAY, while the group counts and
// bounds retries.
//
// A server has two pools. Most requests use the first, whose connections are shared. Requests that can block others on the same
// connection use the second, one per connection: requests whose head is longer than all servers accept, because many servers
// close the connection for it, and requests whose body may use up the flow-control window of the connection if the server does
// not read it, which would block the bodies of all other requests.
type h2Pool struct {
	server *server
	own    bool            // one request per connection, see ownLocked
	wire   *http.Transport // creates HTTP/2 client connections; it does not send requests
	secure *tlsDialer      // nil: without TLS

	http1Until atomic.Int64 // time since the start of the group until which HTTP/2 is not offered, after the server chose HTTP/1.1
	held       atomic.Int64 // bytes of bodies on shared connections, at most sharedBodies

	mu     sync.Mutex // guards the following
	conns  []*h2Conn
	dials  []*h2Dial // in progress
	closed bool      // connections are closed when they become idle
}

const (
	// maxOwn is the maximum number of connections to a server with one request each, and ownShare the maximum of one client
	// address. Beyond that, requests share such connections, those of an address only with each other.
	maxOwn   = 64
	ownShare = maxOwn / 4
	// sharedBodies bounds the bytes of bodies on shared connections that the server may not have read: half of the smallest
	// window of a connection.
	sharedBodies = 32 << 10
)

// hold reports whether a buffered body of n bytes may be sent on a shared connection, and reserves its bytes until letGo.
func (p *h2Pool) hold(n int64) bool {
	if p.held.Add(n) <= sharedBodies {
		return true
	}
	p.held.Add(-n)
	return n == 0
}

func (p *h2Pool) letGo(n int64) { p.held.Add(-n) }

func (p *h2Pool) removeLocked(c *h2Conn) {
	p.conns = slices.DeleteFunc(p.conns, func(other *h2Conn) bool { return other == c })
}

// h2Dial is a connection that is being opened. Requests for which no stream is free wait for it.
type h2Dial struct {
	from netip.Prefix
	done chan struct{} // closed when the following fields are set
	use  *h2Use        // use by the request that started the dial
	err  error
}

func newH2Pool(s *server, secure *tlsDialer, own bool) *h2Pool {
	p := &h2Pool{server: s, own: own, secure: secure, wire: s.transport()}
	p.wire.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return ctx.Value(h2ConnKey{}).(net.Conn), nil
	}
	p.wire.Protocols.SetUnencryptedHTTP2(true) // the connection itself does TLS
	p.wire.ResponseHeaderTimeout = 0           // see ask
	p.wire.HTTP2 = &http.HTTP2Config{
		SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second,
		MaxReceiveBufferPerStream: h2Window, MaxReceiveBufferPerConnection: h2ConnWindow,
	}
	// The copy of the package in Go 1.26's net/http deadlocks if a server exceeds the window of a stream.
	//lint:ignore SA1019 there is no other way to choose it
	if _, err := http2.ConfigureTransports(p.wire); err != nil {
		panic(err) // cannot happen for a new Transport
	}
	return p
}

// get reserves a stream on an existing or a new connection.
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
			go p.dial(context.WithoutCancel(ctx), d, r) // not cancelled with ctx, because others may wait for it
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

// pruneLocked removes connections that have ended or allow no further requests.
func (p *h2Pool) pruneLocked() {
	p.conns = slices.DeleteFunc(p.conns, func(c *h2Conn) bool {
		switch {
		case c.Err() != nil:
			return true
		case c.users > 0 || c.InFlight() > 0 || c.Available() > 0:
			return false
		}
		// The server allows no streams, or has sent GOAWAY.
		go c.Close() // may block until the server reads
		return true
	})
}

// sharedLocked reserves a stream on one of the connections, or returns a dial in progress to wait for, or nils if the caller
// must open a connection.
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

// ownLocked is sharedLocked for pools with one request per connection: it uses a connection that is not busy, or a new one
// within the bounds.
func (p *h2Pool) ownLocked(r *h2Request) (*h2Conn, *h2Dial) {
	have := 0 // connections of the client's address
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
			if c.busy == 0 && c.held <= maxSmallBody && c.Reserve() == nil {
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

// dial opens a connection and reserves a stream for the request that started the dial.
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

// connect opens a connection and waits for the server's settings, which bound the number of streams and the header size.
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
		p.http1Until.Store(int64(time.Since(p.server.group.startedAt) + http1For))
		return nil, errHTTP1
	}
	return conn, nil
}

// close closes idle connections, and the others when they become idle.
func (p *h2Pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.conns {
		if c.users == 0 {
			go c.Close() // may block until the server reads
		}
	}
	p.conns = nil
}

type h2ConnKey struct{}
