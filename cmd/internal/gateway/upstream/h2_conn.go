package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// h2Conn is a connection of a pool.
type h2Conn struct {
	*http.ClientConn
	pool *h2Pool
	wire *settledConn
	lost atomic.Bool // the loss of the connection has been counted as a failure of the server

	// The pool's mutex guards the following:
	users   int // requests on the connection
	retired bool
	busy    int          // number of users that need the connection for themselves
	unsent  int          // number of busy users whose body is not sent completely
	held    int64        // bytes of the bodies of users that are no longer busy
	from    netip.Prefix // client address of the request that made it busy
}

// An h2Request is a request for a pool.
type h2Request struct {
	*http.Request
	body  *sentBody    // nil: none, or completely buffered
	small int64        // length of a buffered body
	from  netip.Prefix // the client's address; zero: unknown
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

// sent is called when the request has been written completely.
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

// settleLocked lets other requests use the connection if this one can no longer block them: the server has accepted its head,
// and its body is small in case the server does not read it.
func (u *h2Use) settleLocked() {
	if !u.busy || u.unsent || u.unanswered {
		return
	}
	held := u.small
	if u.body != nil {
		held = u.body.bytesRead.Load()
	}
	if held <= maxSmallBody {
		u.busy, u.held = false, held
		u.conn.busy--
		u.conn.held += held
	}
}

// end ends the use of the connection. It reports whether the use had not ended before.
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
		go c.Close() // may block until the server reads
	}
	return true
}

// frozen reports whether a stalled connection may have caused the timeout of the request. err is the error of the request, and
// reads the number of reads on the connection before it. A server that is only slow loses one connection per
// timeouts.response_header this way. Timeouts set by others may be much shorter and only count if nothing was read at all.
func (u *h2Use) frozen(err error, reads int64) bool {
	if u.Context().Err() != nil {
		err = context.Cause(u.Context())
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return u.conn.wire.reads.Load() == reads
	}
	return errors.Is(err, errLate) || errors.Is(err, errIdle)
}

// retire removes the connection from the pool. It is closed after its last request.
func (c *h2Conn) retire() {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.retired = true
	c.pool.removeLocked(c)
}

// A lostError is the error of a request whose connection was lost, together with all other requests on it.
type lostError struct {
	conn *h2Conn
	err  error
}

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// fault classifies an error of a request on the connection, or of its response.
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
	close func() error // called once, because each call returns the flow-control window
	stop  func() bool  // prevents closing at the end of the request's context
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

// settledConn closes the channel settled when the first frame, the server's settings, has been processed, and sets write
// timeouts.
type settledConn struct {
	net.Conn
	timeout time.Duration
	settled chan struct{}
	reads   atomic.Int64

	// Used only by the goroutine that reads:
	done bool
	head []byte // the first 3 bytes: the length of the frame
	got  int    // number of bytes read
}

func (c *settledConn) Read(b []byte) (int, error) {
	defer c.reads.Add(1)
	if c.done {
		return c.Conn.Read(b)
	}
	if len(c.head) == 3 && c.got >= 9+int(c.head[0])<<16+int(c.head[1])<<8+int(c.head[2]) {
		c.settle() // everything read before has been processed
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

// Write closes the connection if the server does not read b in time. All other writes wait for it, and so do readers of
// responses, because they send window updates.
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
