//go:build unix

package arrival

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// conn records reads under a lock, so that arrived data is at every moment either unread or recorded as read. Its
// deadline ends only the wait for data that has not arrived.
type conn struct {
	net.Conn
	raw   syscall.RawConn
	waits *Waits
	try   func(fd uintptr) bool // c.read, allocated once

	p   []byte // argument of Read
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
	if errors.Is(err, os.ErrDeadlineExceeded) { // the deadline had passed before the first attempt to read
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

// read reads the available data, and reports whether there was any, or an error or the end of the connection.
func (c *conn) read(fd uintptr) bool {
	c.waits.mu.Lock()
	defer c.waits.mu.Unlock()
	for {
		if c.n, c.err = syscall.Read(int(fd), c.p); !errors.Is(c.err, syscall.EINTR) {
			break
		}
	}
	// Another read means that the caller has processed the data of the previous one.
	c.waits.taken = c.n > 0
	return !errors.Is(c.err, syscall.EAGAIN)
}

// readable reports whether data, or the end of the connection, has arrived.
func (c *conn) readable() (yes bool) {
	err := c.raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		yes = err == nil
	})
	return err == nil && yes
}
