package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/sluiceproject/sluice/cmd/internal/edge/shares"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/keyenc"
	"github.com/sluiceproject/sluice/internal/plainfile"
)

// connections bounds the connections of a listener.
type connections struct {
	max    int
	shares *shares.Counter[netip.Prefix] // connections per address; nil: unlimited
	exempt func(netip.Addr) bool         // addresses exempt from shares; nil: none
}

// listen listens on host:port or unix:///path.
func listen(address string, c connections) (net.Listener, error) {
	network := "tcp"
	if path, ok := UnixPath(address); ok {
		removeStale(path)
		if err := checkAddress(address); err != nil {
			return nil, err
		}
		network, address = "unix", path
	}
	l, err := net.Listen(network, address)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("%w: another process listens there: stop it, or choose another address", err)
		}
		return nil, err
	}
	return &bounded{Listener: l, connections: c}, nil
}

// checkAddress returns the error that listening on a Unix socket would return, without listening.
func checkAddress(address string) error {
	path, ok := UnixPath(address)
	if !ok {
		return nil
	}
	if maximum := len(syscall.RawSockaddrUnix{}.Path) - 1; len(path) > maximum {
		return fmt.Errorf("address: %s: the path has %d bytes, and paths of sockets at most %d: choose a shorter one", path, len(path), maximum)
	}
	if strings.HasPrefix(path, "@") {
		return nil // abstract socket: not a file
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("address: %s: a file of that name exists: remove it, or choose another address", path)
	} else if err == nil {
		return nil // socket of a running or killed process
	}
	if err := plainfile.CheckCreate(path); err != nil {
		return fmt.Errorf("address: %w", err)
	}
	return nil
}

// overlap reports whether two listeners cannot use these addresses at the same time.
func overlap(a, b string) bool {
	_, ok := UnixPath(a)
	if _, other := UnixPath(b); ok || other {
		return a == b
	}
	host, port, err := net.SplitHostPort(a)
	other, same, otherErr := net.SplitHostPort(b)
	if err != nil || otherErr != nil || port != same || port == "0" {
		return false
	}
	return host == other || isWildcard(host) || isWildcard(other)
}

// isWildcard reports whether host means all interfaces.
func isWildcard(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.IsUnspecified()
}

// UnixPath returns the path of an address unix:///path.
func UnixPath(address string) (path string, ok bool) {
	path, ok = strings.CutPrefix(address, "unix:")
	return strings.TrimPrefix(path, "//"), ok
}

// removeStale removes the socket file of a killed process, on which no process listens.
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

// bounded is a listener that closes connections beyond a maximum, in total and per address, so that a flood of connections from
// one address does not exclude others.
type bounded struct {
	net.Listener
	connections
	open atomic.Int64
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if release := b.enter(c); release != nil {
			return &boundedConn{Conn: c, release: sync.OnceFunc(release)}, nil
		}
		_ = c.Close()
	}
}

// enter counts a connection. It returns the function to call when the connection ends, or nil if the connection must be closed.
func (b *bounded) enter(c net.Conn) (release func()) {
	var address netip.Prefix
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok && b.shares != nil {
		a := tcp.AddrPort().Addr().Unmap()
		if b.exempt == nil || !b.exempt(a) {
			address = keyenc.Subscriber(a, 64)
		}
	}
	if address.IsValid() && !b.shares.Enter(address) {
		bounds.ConnectionsPerAddress.Reached()
		return nil
	}
	release = func() {
		b.open.Add(-1)
		if address.IsValid() {
			b.shares.Leave(address)
		}
	}
	if b.open.Add(1) > int64(b.max) {
		bounds.Connections.Reached()
		release()
		return nil
	}
	return release
}

type boundedConn struct {
	net.Conn
	release func()

	// next is set until the first write of a response, on HTTP connections only. Only that write can be a response of net/http
	// itself; later writes, such as a body, may look the same.
	next      atomic.Bool
	malformed func(peer net.Addr, status int) (id string)
}

func (c *boundedConn) Close() error {
	c.release()
	return c.Conn.Close()
}

// CloseWrite closes the write side of the connection, if it supports that.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
