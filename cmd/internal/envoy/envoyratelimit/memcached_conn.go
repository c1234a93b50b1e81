package envoyratelimit

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

const (
	maxMemcachedConns = 64  // per server
	maxMemcachedLine  = 512 // bytes per line of a reply
	// maxMemcachedBatch is the maximum number of commands sent before their replies are read. The replies must fit into the
	// buffers of a connection, because a server that cannot write a reply does not read the next command.
	maxMemcachedBatch = 100
)

// memcachedServer is a Memcached server with its connections.
type memcachedServer struct {
	addr   string
	secure *tls.Config   // nil: without TLS
	slots  chan struct{} // contains one token per call in flight
	trips  atomic.Int64  // number of round trips

	mu     sync.Mutex // guards the fields below
	idle   []*memcachedConn
	closed bool
}

type memcachedConn struct {
	net.Conn
	replies *bufio.Reader
}

func newMemcachedServer(addr string, secure *tls.Config) *memcachedServer {
	return &memcachedServer{addr: addr, secure: secure, slots: make(chan struct{}, maxMemcachedConns)}
}

// with calls f with an exclusive connection. If f fails, the connection is closed, because its next reply may belong to
// another command. Commands sent on a connection that the server had closed are not repeated, because they may have been counted.
func (s *memcachedServer) with(ctx context.Context, f func(*memcachedConn) error) error {
	select {
	case s.slots <- struct{}{}:
	default:
		bounds.MemcachedConnections.Reached()
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { <-s.slots }()
	c, err := s.get(ctx)
	if err != nil {
		return err
	}
	s.trips.Add(1)
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err = f(c)
	if !stop() || err != nil {
		_ = c.Close()
		s.closeIdle() // after a restart of the server all of them are broken
		return err
	}
	s.put(c)
	return nil
}

// reply reads a reply. The reply to gets is returned as two lines, VALUE with its parameters and the value, without END.
func (c *memcachedConn) reply() (string, error) {
	reply, err := c.line()
	if err != nil || !strings.HasPrefix(reply, "VALUE ") {
		return reply, err
	}
	value, err := c.line()
	if err != nil {
		return "", err
	}
	end, err := c.line()
	if err == nil && end != "END" {
		err = fmt.Errorf("unexpected end of a value: %q", end)
	}
	return reply + "\n" + value, err
}

func (c *memcachedConn) line() (string, error) {
	line, err := c.replies.ReadSlice('\n')
	if err != nil {
		if err == bufio.ErrBufferFull {
			bounds.MemcachedReply.Reached()
		}
		return "", err
	}
	return strings.TrimRight(string(line), "\r\n"), nil
}

func (s *memcachedServer) get(ctx context.Context) (*memcachedConn, error) {
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		c := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		return c, nil
	}
	s.mu.Unlock()
	network := "tcp"
	if strings.Contains(s.addr, "/") {
		network = "unix"
	}
	dial := new(net.Dialer).DialContext
	if s.secure != nil {
		dial = (&tls.Dialer{Config: s.secure}).DialContext
	}
	conn, err := dial(ctx, network, s.addr)
	if err != nil {
		return nil, err
	}
	return &memcachedConn{conn, bufio.NewReaderSize(conn, maxMemcachedLine)}, nil
}

func (s *memcachedServer) put(c *memcachedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return
	}
	s.idle = append(s.idle, c)
}

// close closes idle connections. Calls in flight close theirs when they end.
func (s *memcachedServer) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.closeIdle()
}

func (s *memcachedServer) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.idle {
		_ = c.Close()
	}
	s.idle = nil
}
