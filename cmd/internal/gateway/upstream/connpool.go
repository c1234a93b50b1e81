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

// A lane is the connections to a server that speaks HTTP/1 in plain text. What http.Transport does with two goroutines
// for each connection is done here by the one that serves the request; see docs/decisions/011.
type lane struct {
	server *server

	mu     sync.Mutex // guards the following
	idle   []*line    // used last at the end
	reaper *time.Timer
	closed bool
}

// A line is one connection of a lane.
type line struct {
	net.Conn
	lane  *lane
	cut   func() // closes it, when the request ends early
	in    *bufio.Reader
	alive func() bool
	since time.Time // unused

	use lineUse
}

// lineUse is the state of a line that belongs to one exchange.
type lineUse struct {
	reused bool
	most   int64 // that may be read before somebody gets suspicious
	got    int64 // read since the request was sent
}

// clean removes what an exchange has left on the line, and reports whether the line may serve another. Everything that an
// exchange sets is taken back here and nowhere else.
func (c *line) clean() bool {
	if c.in.Buffered() > 0 {
		return false // more came than was asked for
	}
	c.use = lineUse{}
	c.in.Reset(c) // an error that was read ahead goes too
	return c.SetDeadline(time.Time{}) == nil
}

var errHeaderTooLong = errors.New("the header of its answer is too long")

// Read counts what comes.
func (c *line) Read(p []byte) (int, error) {
	u := &c.use
	if u.most <= 0 {
		if u.most == 0 {
			u.most-- // it is counted once
			bounds.UpstreamHeader.Reached()
		}
		return 0, errHeaderTooLong
	}
	if int64(len(p)) > u.most {
		p = p[:u.most]
	}
	n, err := c.Conn.Read(p)
	u.most -= int64(n)
	u.got += int64(n)
	return n, err
}

// get is a connection that nobody uses, or a new one.
func (l *lane) get(ctx context.Context, fresh bool) (*line, error) {
	for !fresh {
		c := l.pop()
		if c == nil {
			break
		}
		// A server that has something to say unasked is confused about whose answer is whose.
		if time.Since(c.since) < keepIdle && c.alive() {
			c.use.reused = true
			return c, nil
		}
		c.Close()
	}
	conn, err := l.server.dial(ctx, "", "")
	if err != nil {
		return nil, err
	}
	c := &line{Conn: conn, lane: l, alive: aliveCheck(conn), cut: func() { conn.Close() }}
	c.in = bufio.NewReaderSize(c, 4<<10)
	return c, nil
}

func (l *lane) pop() *line {
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
func (l *lane) put(c *line) {
	if !c.clean() {
		c.Close()
		return
	}
	c.since = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.idle) >= l.server.group.cfg.KeptConnections {
		c.Close()
		return
	}
	l.idle = append(l.idle, c)
	if l.reaper == nil {
		l.reaper = time.AfterFunc(keepIdle, l.reap)
	}
}

// reap closes what has not been used for long.
func (l *lane) reap() {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, now := 0, time.Now()
	for old < len(l.idle) && now.Sub(l.idle[old].since) >= keepIdle {
		l.idle[old].Close()
		old++
	}
	l.idle = append(l.idle[:0], l.idle[old:]...)
	l.reaper = nil
	if len(l.idle) > 0 {
		l.reaper = time.AfterFunc(keepIdle-now.Sub(l.idle[0].since), l.reap)
	}
}

func (l *lane) close() {
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
