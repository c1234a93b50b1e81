//go:build unix

package arrival

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// conn notes under a lock that something was read, so that what has come is at every moment either still to be read or
// known to have been. Its deadline ends only the wait for what has not come.
type conn struct {
	net.Conn
	raw   syscall.RawConn
	waits *Waits
	try   func(fd uintptr) bool // c.read, made once

	p   []byte // of Read
	n   int
	err error
}

func watch(of net.Conn, w *Waits) net.Conn {
	from, ok := of.(syscall.Conn)
	if !ok {
		return of
	}
	raw, err := from.SyscallConn()
	if err != nil {
		return of
	}
	c := &conn{Conn: of, raw: raw, waits: w}
	c.try = c.read
	w.readable = c.readable
	return c
}

func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.p = p
	err := c.raw.Read(c.try)
	if errors.Is(err, os.ErrDeadlineExceeded) { // which was found before anybody looked
		there := false
		if c.raw.Control(func(fd uintptr) { there = c.read(fd) }) == nil && there {
			err = nil
		}
	}
	c.p = nil
	switch {
	case err != nil:
		return 0, err
	case c.err != nil:
		return 0, &net.OpError{
			Op: "read", Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError("read", c.err),
		}
	case c.n == 0:
		return 0, io.EOF
	}
	return c.n, nil
}

// read reads what is there, and tells whether there was something.
func (c *conn) read(fd uintptr) bool {
	c.waits.mu.Lock()
	defer c.waits.mu.Unlock()
	for {
		if c.n, c.err = syscall.Read(int(fd), c.p); !errors.Is(c.err, syscall.EINTR) {
			break
		}
	}
	// Who reads again has made use of what was read before.
	c.waits.taken = c.n > 0
	return !errors.Is(c.err, syscall.EAGAIN)
}

// readable tells whether something has come, if only the end of the connection.
func (c *conn) readable() (yes bool) {
	err := c.raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		yes = err == nil
	})
	return err == nil && yes
}
