package memcachestore

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/arrival"
	"github.com/sluiceproject/sluice/internal/bounds"
)

const (
	// maxConns is the maximum number of connections to one server. A call uses one only for a round trip, so that these
	// suffice for tens of thousands of calls per second.
	maxConns = 64
	// maxBatch is the maximum number of commands sent before their replies are read. Otherwise both ends could block on
	// full buffers.
	maxBatch = 64
	// warmConns is the number of connections to each server that [Store.Connect] opens.
	warmConns = 4
)

// server is one Memcached server and the connections to it.
type server struct {
	network, addr string
	seed          uint64 // of its scores in pick
	tls           *tls.Config
	trips         atomic.Int64 // number of calls of exchange

	slots chan struct{} // contains a token for each connection in use
	ended chan struct{} // closed by close

	mu     sync.Mutex // guards the fields below
	idle   []*conn    // the most recently used is last
	open   map[*conn]bool
	closed bool
}

func newServer(a string, t *tls.Config) *server {
	network, addr, host := resolve(a)
	seed := sha256.Sum256([]byte(addr))
	s := &server{
		network: network, addr: addr, seed: binary.LittleEndian.Uint64(seed[:]),
		slots: make(chan struct{}, maxConns), ended: make(chan struct{}), open: map[*conn]bool{},
	}
	if t != nil {
		s.tls = t.Clone()
		if s.tls.ServerName == "" {
			s.tls.ServerName = host
		}
	}
	return s
}

// conn is one connection. It is used by one call at a time.
type conn struct {
	net.Conn
	r      *bufio.Reader
	out    []byte
	opaque uint64 // number of the last command; no two on a connection are equal
	waits  *arrival.Waits
	asked  int64 // number of exchanges
}

// String returns the address.
func (s *server) String() string { return s.addr }

// get implements backend.
func (s *server) get(ctx context.Context, keys []string, out []stored) error {
	return s.exchange(ctx, gets(keys, out))
}

// swap implements backend.
func (s *server) swap(ctx context.Context, swaps []swap) error {
	wall := time.Now()
	err := s.exchange(ctx, commands{
		n:       len(swaps),
		command: func(i int) command { return swapCommand(&swaps[i], wall) },
		accept:  func(i int, r reply) { swaps[i].lost = r.status != done },
	})
	if errors.Is(err, errRefused) {
		s.restore(ctx, swaps)
	}
	return err
}

// restore restores values that the server has dropped. A server without memory for a new value rejects it and deletes
// the old one, so that no stale value is read; here that would reset the quota. The memory of the old value is then
// free.
func (s *server) restore(ctx context.Context, swaps []swap) {
	for i := range swaps {
		if x := &swaps[i]; x.version != 0 && x.value != nil && x.old != nil {
			// An error changes nothing, because the call has failed already.
			_ = s.swap(ctx, []swap{{key: x.key, value: x.old, ttl: x.ttl}})
		}
	}
}

// commands is a sequence of commands sent together. Each is created, and its reply used, one at a time: no list of them
// is allocated.
type commands struct {
	n       int
	reads   bool // resending them is harmless
	command func(i int) command
	accept  func(i int, r reply)
}

// gets reads the values of keys.
func gets(keys []string, out []stored) commands {
	return commands{
		n: len(keys), reads: true,
		command: func(i int) command { return command{verb: verbGet, key: keys[i]} },
		accept: func(i int, r reply) {
			if out[i] = (stored{}); r.status == value {
				out[i] = stored{value: r.value, version: r.cas}
			}
		},
	}
}

// exchange sends the commands and reads a reply to each, in order. Commands that may have been executed are never
// resent.
func (s *server) exchange(ctx context.Context, all commands) error {
	s.trips.Add(1)
	for from := 0; from < all.n; from += maxBatch {
		err := s.with(ctx, all.reads, func(c *conn) error { return c.exchange(all, from, min(from+maxBatch, all.n)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// with runs f on a connection. If that is an idle connection that turns out to be closed, and again is set, it runs f
// again on a new one.
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

// run runs f on the connection until ctx ends. The connection is idle afterwards, or closed after an error.
func (s *server) run(ctx context.Context, c *conn, f func(c *conn) error) error {
	// The connection has no deadline, because that could pass while the reply is already there.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err := f(c)
	if !stop() && err == nil {
		s.drop(c) // f succeeded, but the deadline has passed or is about to be set
		return nil
	}
	if err == nil && c.r.Buffered() > 0 {
		err = fmt.Errorf("unexpected data after the reply: %w", errProtocol)
	}
	if err != nil {
		s.drop(c)
		if isDead(err) {
			s.dropIdle() // the server has closed the others too, or does not reply there either
		}
		return err
	}
	s.keep(c)
	return nil
}

// isDead reports whether an error means that the other end has closed the connection.
func isDead(err error) bool {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return false
	}
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}

// explain adds the server's address to an error. An error caused by close becomes sluice.ErrClosed.
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

// lastUsed returns the most recently used idle connection, or nil.
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
	// The first number is random, so that a reply for another connection is not accepted on this one.
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

// warm opens connections and reads a key on each, because the store timeout is too short for a handshake.
func (s *server) warm(ctx context.Context, key string) error {
	for range warmConns {
		c, err := s.dial(ctx)
		if err == nil {
			err = s.run(ctx, c, func(c *conn) error { return c.exchange(gets([]string{key}, make([]stored, 1)), 0, 1) })
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

// close closes all connections and waits for the calls that use them.
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

// exchange sends some of the commands and reads their replies.
func (c *conn) exchange(all commands, from, to int) error {
	c.out = c.out[:0]
	first := c.opaque + 1
	for i := from; i < to; i++ {
		c.opaque++
		command := all.command(i)
		c.out = command.appendTo(c.out, c.opaque)
	}
	if _, err := c.Write(c.out); err != nil {
		return err
	}
	c.asked++
	c.waits.Wrote(c.asked)
	if cap(c.out) > 64<<10 {
		c.out = nil // one long log must not make the buffers of all connections large
	}
	for i := from; i < to; i++ {
		command := all.command(i)
		r, err := readReply(c.r, &command, first+uint64(i-from))
		if err != nil {
			return err
		}
		all.accept(i, r)
	}
	c.waits.Answered(c.asked)
	return nil
}
