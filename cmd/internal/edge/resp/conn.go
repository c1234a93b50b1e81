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
	// minBuffer is what a connection reads into at first; one that sends more at once gets more.
	minBuffer = 512
	// flushAt is how many bytes of answers are gathered before they are written, whole commands left or not.
	flushAt = 4 << 10
	// lingerTimeout is for how long nothing may come over a connection that is to end before it does, and maxLinger for how
	// long it is read from at all: there is no way to tell a client that it should go.
	lingerTimeout = 100 * time.Millisecond
	maxLinger     = 2 * time.Second
)

// conn is one client.
type conn struct {
	net.Conn
	server *Server
	peer   string
	id     int64

	authenticated bool // it has shown the password, or there is none
	proto         int  // 2 or 3
	last          bool // the answers that are not written are the last

	in         []byte
	start, end int // of what was read and is not answered
	command    command
	out        []byte // answers that are not written
	recent     recent
	one        throttleCall   // of a store that answers at once
	batch      []throttleCall // of one that does not
	counts     Counts         // of the answers that are not written

	now        time.Time // when something was read last
	readUntil  time.Time // deadlines
	writeUntil time.Time
	begun      bool // readUntil is for a command of which a part has come
	answered   bool // something, since then
	draining   bool // what has come is answered, until drainUntil
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

// serve answers until the client or the server has had enough.
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

// handshake makes TLS ready, where there is TLS, before somebody can be idle in it. Only then may it be woken: a handshake
// that was disturbed cannot go on.
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

// answerAll answers the commands that have come whole, and tells whether there may be more.
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

// reject answers what is no command, which is the last that is answered.
func (c *conn) reject(err error) {
	if err == errTooLarge || err == errCount || err == errLength { //nolint:errorlint // they are never wrapped
		bounds.RESPCommand.Reached()
	}
	c.fail("ERR " + err.Error())
	c.last = true
}

// read waits for more, and tells whether some came.
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

// makeRoom moves what is not answered to the front, and has a larger buffer if that is not enough. It fails if a command
// does not fit the largest.
func (c *conn) makeRoom() bool {
	full := c.end == len(c.in)
	rest := c.in[c.start:c.end]
	if full && len(c.in) < maxCommandBytes {
		c.in = make([]byte, min(4*len(c.in), maxCommandBytes))
	}
	c.start, c.end = 0, copy(c.in, rest)
	return c.end < len(c.in)
}

// extend gives the client time until its next bytes. Who has begun a command is given no more however little comes, and
// who is to show a password is not until that is done. Deadlines are moved only when they must be: that is not free.
func (c *conn) extend() {
	begun := c.end > 0
	switch {
	case c.draining && c.drainUntil.Sub(c.now) > lingerTimeout:
		c.readBy(c.now.Add(lingerTimeout))
		return
	case c.draining || !c.authenticated || begun && c.begun && !c.answered:
		return
	}
	given := c.server.idleTime
	if begun {
		given = c.server.commandTime
	}
	if begun != c.begun || c.readUntil.Sub(c.now) < given*3/4 {
		c.readBy(c.now.Add(given))
	}
	c.begun, c.answered = begun, false
}

func (c *conn) readBy(t time.Time) {
	c.readUntil = t
	_ = c.SetReadDeadline(t) // of a connection that is gone: the next call tells
	if c.server.draining.Load() && !c.draining {
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
}

// flush writes the answers, and tells whether that went well.
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

// linger has the client read its last answers: what it still sends would else cost it those.
func (c *conn) linger() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.draining = true
	c.readBy(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, c.Conn, 1<<20)
}
