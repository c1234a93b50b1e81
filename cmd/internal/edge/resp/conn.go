package resp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

const (
	// minBuffer is the initial size of the read buffer, which grows as needed.
	minBuffer = 512
	// flushAt is the number of bytes of replies from which they are written even if complete commands are left.
	flushAt = 4 << 10
	// lingerTimeout is the time without data after which a draining connection is closed, and maxLinger the maximum time that
	// it is read from. The protocol has no message that asks a client to disconnect.
	lingerTimeout = 100 * time.Millisecond
	maxLinger     = 2 * time.Second
)

// conn is the connection of a client.
type conn struct {
	net.Conn
	server *Server
	peer   string
	id     int64

	authenticated bool // by password, or because none is required
	proto         int  // 2 or 3
	last          bool // close the connection after the pending replies

	in         []byte
	start, end int // range of in that is not executed yet
	command    command
	out        []byte // pending replies
	recent     recent
	one        throttleCall   // with the memory store
	batch      []throttleCall // with a remote store
	counts     Counts         // of the pending replies

	now        time.Time // time of the last read
	readUntil  time.Time // deadlines
	writeUntil time.Time
	begun      bool // readUntil is the deadline of an incomplete command
	answered   bool // a command was executed since readUntil was set
	draining   bool // received commands are executed until drainUntil
	drainUntil time.Time
}

func (s *Server) newConn(c net.Conn) *conn {
	n := &conn{
		Conn: c, server: s, peer: peerOf(c), id: s.ids.Add(1), authenticated: s.password == nil, proto: 2,
		in: make([]byte, minBuffer), now: time.Now(),
	}
	n.one.takes[0].Rule = s.rule
	return n
}

// serve executes commands until the client disconnects or the connection is closed.
func (c *conn) serve() {
	if !c.handshake() {
		return
	}
	for c.read() && c.answerAll() && c.flush() {
	}
	if c.last && c.flush() {
		c.linger()
	}
}

// handshake completes the TLS handshake, if there is TLS, within the command time, and reports whether it succeeded. Only
// after it may Drain interrupt reads, because an interrupted handshake cannot be resumed.
func (c *conn) handshake() bool {
	until := c.now.Add(c.server.commandTime)
	if secure, ok := c.Conn.(interface{ HandshakeContext(context.Context) error }); ok {
		_ = c.SetDeadline(until)
		if secure.HandshakeContext(c.server.ctx) != nil {
			return false
		}
	}
	c.server.ready(c)
	c.readBy(until)
	return true
}

// answerAll executes the complete commands in the buffer and reports whether the connection stays open.
func (c *conn) answerAll() bool {
	for c.start < c.end && !c.last {
		used, err := c.command.parse(c.in[c.start:c.end])
		if err != nil {
			c.reject(err)
			break
		}
		if used == 0 {
			break
		}
		c.start += used
		c.answered = true
		if len(c.command.args) > 0 {
			c.execute(c.command.args)
		}
		if len(c.out) >= flushAt && !c.flush() {
			return false
		}
	}
	c.finishBatch()
	return !c.last
}

// reject appends the reply to an invalid command and ends the connection.
func (c *conn) reject(err error) {
	if err == errTooLarge || err == errCount || err == errLength { //nolint:errorlint // they are never wrapped
		bounds.RESPCommand.Reached()
	}
	c.fail("ERR " + err.Error())
	c.last = true
}

// read reads more bytes and reports whether there were any.
func (c *conn) read() bool {
	if !c.makeRoom() {
		c.reject(errTooLarge)
		return false
	}
	c.extend()
	for {
		n, err := c.Conn.Read(c.in[c.end:])
		c.now = time.Now()
		if n > 0 {
			c.end += n
			return true
		}
		if err == nil {
			continue
		}
		if c.draining || !errors.Is(err, os.ErrDeadlineExceeded) || !c.server.draining.Load() {
			c.last = c.draining
			return false
		}
		c.draining, c.drainUntil = true, c.now.Add(maxLinger)
		c.extend()
	}
}

// makeRoom moves the unexecuted bytes to the start of the buffer and enlarges it if it is full. It reports whether there is
// room; there is none if a command exceeds the maximum size.
func (c *conn) makeRoom() bool {
	full := c.end == len(c.in)
	rest := c.in[c.start:c.end]
	if full && len(c.in) < maxCommandBytes {
		c.in = make([]byte, min(4*len(c.in), maxCommandBytes))
	}
	c.start, c.end = 0, copy(c.in, rest)
	return c.end < len(c.in)
}

// extend sets the read deadline. The deadline of an incomplete command is not extended by further bytes, and that of a client
// that is not authenticated yet not at all. Deadlines are changed only when necessary, because that costs time.
func (c *conn) extend() {
	begun := c.end > 0
	switch {
	case c.draining && c.drainUntil.Sub(c.now) > lingerTimeout:
		c.readBy(c.now.Add(lingerTimeout))
		return
	case c.draining || !c.authenticated || begun && c.begun && !c.answered:
		return
	}
	timeout := c.server.idleTime
	if begun {
		timeout = c.server.commandTime
	}
	if begun != c.begun || c.readUntil.Sub(c.now) < timeout*3/4 {
		c.readBy(c.now.Add(timeout))
	}
	c.begun, c.answered = begun, false
}

func (c *conn) readBy(t time.Time) {
	c.readUntil = t
	_ = c.SetReadDeadline(t) // if the connection is closed, the next read returns the error
	if c.server.draining.Load() && !c.draining {
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
}

// flush writes the pending replies and reports whether that succeeded.
func (c *conn) flush() bool {
	if len(c.out) == 0 {
		return true
	}
	if c.writeUntil.Sub(c.now) < c.server.commandTime/2 {
		c.writeUntil = c.now.Add(c.server.commandTime)
		_ = c.SetWriteDeadline(c.writeUntil)
	}
	if c.server.counted != nil {
		c.server.counted(c.counts)
	}
	c.counts = Counts{}
	_, err := c.Write(c.out)
	c.out = c.out[:0]
	return err == nil
}

// linger reads and discards data until the client has received the last replies. Closing a connection with unread data
// would reset it and lose them.
func (c *conn) linger() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.draining = true
	c.readBy(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, c.Conn, 1<<20)
}
