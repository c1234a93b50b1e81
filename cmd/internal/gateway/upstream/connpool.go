package upstream

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// A connPool is the connections to a server that speaks HTTP/1 in plain text. What http.Transport does with two goroutines
// for each connection is done here by the one that serves the request; see docs/decisions/011.
type connPool struct {
	server *server

	mu     sync.Mutex    // guards the following
	idle   []*pooledConn // used last at the end
	reaper *time.Timer
	closed bool
}

// A pooledConn is one connection of a connPool.
type pooledConn struct {
	net.Conn
	pool      *connPool
	closeNow  func() // closes it, when the request ends early
	in        *bufio.Reader
	isOpen    func() bool
	idleSince time.Time // unused

	use connUse
}

// connUse is the state of a connection that belongs to one round trip.
type connUse struct {
	reused    bool
	readLimit int64 // bytes that may still be read
	bytesRead int64 // since the request was sent
}

// reset removes what a round trip has left on the connection, and reports whether it may serve another. Everything that a
// round trip sets is taken back here and nowhere else.
func (c *pooledConn) reset() bool {
	if c.in.Buffered() > 0 {
		return false // more came than was asked for
	}
	c.use = connUse{}
	c.in.Reset(c) // an error that was read ahead goes too
	return c.SetDeadline(time.Time{}) == nil
}

var errHeaderTooLong = errors.New("the header of its answer is too long")

// Read counts what comes.
func (c *pooledConn) Read(p []byte) (int, error) {
	u := &c.use
	if u.readLimit <= 0 {
		if u.readLimit == 0 {
			u.readLimit-- // it is counted once
			bounds.UpstreamHeader.Reached()
		}
		return 0, errHeaderTooLong
	}
	if int64(len(p)) > u.readLimit {
		p = p[:u.readLimit]
	}
	n, err := c.Conn.Read(p)
	u.readLimit -= int64(n)
	u.bytesRead += int64(n)
	return n, err
}

// get returns an idle connection, or a new one.
func (l *connPool) get(ctx context.Context, fresh bool) (*pooledConn, error) {
	for !fresh {
		c := l.pop()
		if c == nil {
			break
		}
		// A server that sends something unasked has lost track of which response is whose.
		if time.Since(c.idleSince) < keepIdle && c.isOpen() {
			c.use.reused = true
			return c, nil
		}
		c.Close()
	}
	conn, err := l.server.dial(ctx, "", "")
	if err != nil {
		return nil, err
	}
	c := &pooledConn{Conn: conn, pool: l, isOpen: newConnCheck(conn), closeNow: func() { conn.Close() }}
	c.in = bufio.NewReaderSize(c, 4<<10)
	return c, nil
}

func (l *connPool) pop() *pooledConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.idle) - 1
	if last < 0 {
		return nil
	}
	c := l.idle[last]
	l.idle[last] = nil
	l.idle = l.idle[:last]
	return c
}

// put keeps a connection for the next request, if nothing of the last is left on it.
func (l *connPool) put(c *pooledConn) {
	if !c.reset() {
		c.Close()
		return
	}
	c.idleSince = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.idle) >= l.server.group.cfg.MaxIdleConns {
		c.Close()
		return
	}
	l.idle = append(l.idle, c)
	if l.reaper == nil {
		l.reaper = time.AfterFunc(keepIdle, l.reap)
	}
}

// reap closes what has not been used for long.
func (l *connPool) reap() {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, now := 0, time.Now()
	for old < len(l.idle) && now.Sub(l.idle[old].idleSince) >= keepIdle {
		l.idle[old].Close()
		old++
	}
	l.idle = append(l.idle[:0], l.idle[old:]...)
	l.reaper = nil
	if len(l.idle) > 0 {
		l.reaper = time.AfterFunc(keepIdle-now.Sub(l.idle[0].idleSince), l.reap)
	}
}

func (l *connPool) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, c := range l.idle {
		c.Close()
	}
	l.idle = nil
	if l.reaper != nil {
		l.reaper.Stop()
	}
}
