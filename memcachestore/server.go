package memcachestore

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/arrival"
	"github.com/sluiceproject/sluice/internal/bounds"
)

const (
	// maxConns bounds the connections to one server. A call has one for the length of a round trip only, so that these
	// carry tens of thousands of calls a second.
	maxConns = 64
	// maxBatch bounds the commands sent before their replies are read: both ends could otherwise wait for each other
	// with full buffers.
	maxBatch = 64
	// warmConns is how many connections to each server [Store.Connect] makes.
	warmConns = 4
)

// server is one Memcached and the connections to it.
type server struct {
	network, addr string
	seed          uint64 // of its scores in pick
	tls           *tls.Config

	slots chan struct{} // a connection in use holds one
	ended chan struct{} // closed by close

	mu     sync.Mutex // guards the fields below
	idle   []*conn    // the last used is last
	open   map[*conn]bool
	closed bool
}

// conn is one connection. It is used by one call at a time.
type conn struct {
	net.Conn
	r      *bufio.Reader
	out    []byte
	opaque uint64 // of the last command: no two on a connection share one
	waits  *arrival.Waits
	asked  int64 // how often something was
}

// exchange sends the commands and reads a reply to each, in order. What may have been carried out is never sent twice.
func (s *server) exchange(ctx context.Context, commands []command, replies []reply) error {
	for len(commands) > 0 {
		n := min(len(commands), maxBatch)
		if err := s.exchangeBatch(ctx, commands[:n], replies[:n]); err != nil {
			return err
		}
		commands, replies = commands[n:], replies[n:]
	}
	return nil
}

func (s *server) exchangeBatch(ctx context.Context, commands []command, replies []reply) error {
	again := true // asking once more changes nothing
	for i := range commands {
		again = again && !commands[i].writes()
	}
	return s.with(ctx, again, func(c *conn) error { return c.exchange(commands, replies) })
}

// with runs f on a connection. If that was an old one which turns out to be dead, and f may run again, it does so on a
// new one.
func (s *server) with(ctx context.Context, again bool, f func(c *conn) error) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-s.ended:
		return sluice.ErrClosed
	case <-ctx.Done():
		bounds.MemcachedConnections.Reached()
		return fmt.Errorf("%s: waiting for one of %d connections: %w", s.addr, maxConns, ctx.Err())
	}
	c, err := s.lastUsed()
	if err != nil {
		return err
	}
	if c != nil {
		err = s.run(ctx, c, f)
		if err == nil || !again || !isDead(err) || ctx.Err() != nil {
			return s.explain(err)
		}
	}
	if c, err = s.dial(ctx); err != nil {
		return s.explain(err)
	}
	return s.explain(s.run(ctx, c, f))
}

// run has f use the connection until the context ends, and keeps it for others unless something went wrong.
func (s *server) run(ctx context.Context, c *conn, f func(c *conn) error) error {
	// It has no deadline of its own, which could pass while the reply is there: the context knows when it is time.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err := f(c)
	if !stop() && err == nil {
		s.drop(c) // all is well, but the deadline is or will be that of a call which has ended
		return nil
	}
	if err == nil && c.r.Buffered() > 0 {
		err = fmt.Errorf("more came than was asked for: %w", errProtocol)
	}
	if err != nil {
		s.drop(c)
		if isDead(err) {
			s.dropIdle() // the server has closed the others too, or will not answer there either
		}
		return err
	}
	s.keep(c)
	return nil
}

// isDead tells that a connection was found closed by the other end.
func isDead(err error) bool {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return false
	}
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}

// explain says whose fault an error is. One that a close has caused is a close.
func (s *server) explain(err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-s.ended:
		return sluice.ErrClosed
	default:
		return fmt.Errorf("%s: %w", s.addr, err)
	}
}

// lastUsed returns an idle connection, or nil.
func (s *server) lastUsed() (*conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, sluice.ErrClosed
	}
	if len(s.idle) == 0 {
		return nil, nil
	}
	c := s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	return c, nil
}

func (s *server) dial(ctx context.Context) (*conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, s.network, s.addr)
	if err != nil {
		return nil, err
	}
	waits := new(arrival.Waits)
	nc = waits.Made(nc)
	if s.tls != nil {
		t := tls.Client(nc, s.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, fmt.Errorf("TLS: %w", err)
		}
		nc = t
	}
	// The first number is drawn, so that what was meant for another connection is not taken for ours.
	c := &conn{Conn: nc, r: bufio.NewReaderSize(nc, 4096), waits: waits, opaque: rand.Uint64N(1 << 48)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = nc.Close()
		return nil, sluice.ErrClosed
	}
	s.open[c] = true
	return c, nil
}

// warm makes connections and has each answer a command, for which a decision has too little time.
func (s *server) warm(ctx context.Context, commands []command) error {
	for range warmConns {
		c, err := s.dial(ctx)
		if err == nil {
			err = s.run(ctx, c, func(c *conn) error { return c.exchange(commands, make([]reply, len(commands))) })
		}
		if err != nil {
			return s.explain(err)
		}
	}
	return nil
}

func (s *server) keep(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.idle = append(s.idle, c)
	}
}

func (s *server) drop(c *conn) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

func (s *server) dropIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.idle {
		_ = c.Close()
		delete(s.open, c)
	}
	s.idle = nil
}

// close ends all connections and waits for the calls that use them.
func (s *server) close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	close(s.ended)
	for c := range s.open {
		_ = c.Close()
	}
	s.idle = nil
	s.mu.Unlock()
	for range cap(s.slots) {
		s.slots <- struct{}{}
	}
}

func (c *conn) exchange(commands []command, replies []reply) error {
	c.out = c.out[:0]
	first := c.opaque + 1
	for i := range commands {
		c.opaque++
		c.out = commands[i].appendTo(c.out, c.opaque)
	}
	if _, err := c.Write(c.out); err != nil {
		return err
	}
	c.asked++
	c.waits.Wrote(c.asked)
	if cap(c.out) > 64<<10 {
		c.out = nil // one long log must not make every connection large
	}
	for i := range commands {
		var err error
		if replies[i], err = readReply(c.r, &commands[i], first+uint64(i)); err != nil {
			return err
		}
	}
	c.waits.Answered(c.asked)
	return nil
}
