package server

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// lazily makes connections whose deadlines cost little.
type lazily struct{ net.Listener }

func (l lazily) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lazyConn{Conn: c}, nil
}

// lazyConn is a connection that is told of a deadline only if that is sooner than the one it knows. net/http sets and takes
// back half a dozen for each request, of which none is ever reached. Who does reach one that has been put off, or taken
// back, waits on.
type lazyConn struct {
	net.Conn
	in, out deadline
}

func (c *lazyConn) Read(b []byte) (int, error) {
	for {
		c.in.revive(c.Conn.SetReadDeadline)
		n, err := c.Conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !c.in.goesOn(c.Conn.SetReadDeadline) {
			return n, err
		}
	}
}

func (c *lazyConn) Write(b []byte) (int, error) {
	for written := 0; ; {
		c.out.revive(c.Conn.SetWriteDeadline)
		n, err := c.Conn.Write(b[written:])
		written += n
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || !c.out.goesOn(c.Conn.SetWriteDeadline) {
			return written, err
		}
	}
}

func (c *lazyConn) SetReadDeadline(t time.Time) error {
	return c.in.want(t, c.Conn.SetReadDeadline)
}

func (c *lazyConn) SetWriteDeadline(t time.Time) error {
	return c.out.want(t, c.Conn.SetWriteDeadline)
}

func (c *lazyConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// CloseWrite ends what is said and goes on hearing, where the connection can.
func (c *lazyConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// deadline is that of one direction.
type deadline struct {
	mu     sync.Mutex // guards the following, and is held while the connection is told
	wanted time.Time  // zero: none
	known  time.Time  // to the connection
}

// want changes the deadline.
func (d *deadline) want(t time.Time, tell func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = t
	if t.IsZero() || !d.known.IsZero() && !t.Before(d.known) {
		return nil
	}
	d.known = t
	return tell(t)
}

// revive takes back a deadline of long ago, by which somebody was woken up.
func (d *deadline) revive(tell func(time.Time) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if isLongAgo(d.known) && !isLongAgo(d.wanted) {
		d.known = d.wanted
		_ = tell(d.wanted)
	}
}

// goesOn tells whether there is time left after the deadline that the connection knows.
func (d *deadline) goesOn(tell func(time.Time) error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.wanted.IsZero() && !d.wanted.After(time.Now()) {
		return false
	}
	d.known = d.wanted
	return tell(d.wanted) == nil
}

// isLongAgo tells deadlines that are to end what is waiting.
func isLongAgo(t time.Time) bool { return !t.IsZero() && t.Unix() < 1e9 }
