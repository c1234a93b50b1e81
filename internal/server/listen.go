package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// listen listens on host:port or unix:///path, and has at most so many connections at once.
func listen(address string, most int) (net.Listener, error) {
	network := "tcp"
	if path, ok := UnixPath(address); ok {
		network, address = "unix", path
		removeStale(path)
	}
	l, err := net.Listen(network, address)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("%w: something else listens there: end it, or choose another address", err)
		}
		return nil, err
	}
	return &bounded{Listener: l, most: int64(most)}, nil
}

// UnixPath is the path of an address unix:///path.
func UnixPath(address string) (path string, ok bool) {
	path, ok = strings.CutPrefix(address, "unix:")
	return strings.TrimPrefix(path, "//"), ok
}

// removeStale removes a socket that nobody listens on any more, which a process that was killed leaves behind.
func removeStale(path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
}

// bounded closes connections beyond a number at once, so that a flood of them leaves room for the others.
type bounded struct {
	net.Listener
	most int64
	open atomic.Int64
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.open.Add(1) > b.most {
			b.open.Add(-1)
			_ = c.Close()
			continue
		}
		return &boundedConn{Conn: c, release: sync.OnceFunc(func() { b.open.Add(-1) })}, nil
	}
}

type boundedConn struct {
	net.Conn
	release func()
}

func (c *boundedConn) Close() error {
	c.release()
	return c.Conn.Close()
}

// CloseWrite ends what is said and goes on hearing, where the connection can.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
