package redisstore

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
)

// errSurplus is said of a connection on which more was answered than was asked. The client would panic at the first
// reply that nobody waits for, and with it the process.
var errSurplus = errors.New("redisstore: the server, or something before it, has answered more than it was asked")

// countedConn counts the commands that are sent on a connection and the replies that come, and ends it when there are
// more of these.
type countedConn struct {
	net.Conn
	asked    atomic.Int64
	out      frames // used by who writes
	in       frames // used by who reads
	answered int64
	plain    bool // no RESP3: messages that nobody asked for cannot be told from replies
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.out.feed(b)
	if err != nil {
		return 0, err
	}
	c.asked.Add(n)
	return c.Conn.Write(b)
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n == 0 || c.plain {
		return n, err
	}
	if c.answered == 0 && c.in.fresh() && b[0] == '-' { // HELLO is the first command
		c.plain = true
		return n, err
	}
	replies, bad := c.in.feed(b[:n])
	if c.answered += replies; bad == nil && c.answered > c.asked.Load() {
		bad = errSurplus
	}
	if bad != nil {
		_ = c.Close()
		return 0, bad
	}
	return n, err
}

// frames follows Redis' protocol just so far as to see where a value ends.
type frames struct {
	line  []byte  // the beginning of one, whose end has not come
	skip  int64   // bytes of a string to come
	open  []int64 // elements to come, of the arrays that are not complete
	push  bool    // the outermost value is a message that nobody asked for
	begun bool
}

// mostLine bounds a line that is kept.
const mostLine = 64 << 10

var errFrame = errors.New("redisstore: the server, or something before it, does not speak Redis' protocol")

// fresh tells that nothing has come yet.
func (f *frames) fresh() bool { return !f.begun }

// feed tells how many values end in what has come, other than messages that nobody asked for.
func (f *frames) feed(b []byte) (ended int64, err error) {
	f.begun = true
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, int64(len(b)))
			b = b[n:]
			if f.skip -= n; f.skip == 0 {
				ended += f.end()
			}
			continue
		}
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			if len(f.line)+len(b) > mostLine {
				return ended, errFrame
			}
			f.line = append(f.line, b...)
			break
		}
		line := b[:i]
		if len(f.line) > 0 {
			f.line = append(f.line, line...)
			line = f.line
		}
		n, err := f.begin(bytes.TrimSuffix(line, []byte("\r")))
		if err != nil {
			return ended, err
		}
		ended += n
		f.line = f.line[:0]
		b = b[i+1:]
	}
	return ended, nil
}

// begin reads the line that a value begins with.
func (f *frames) begin(line []byte) (ended int64, err error) {
	if len(line) == 0 {
		return 0, errFrame
	}
	var each int64 = 1
	switch line[0] {
	case '+', '-', ':', '_', '#', ',', '(':
		return f.end(), nil
	case '$', '!', '=':
		n, err := strconv.ParseInt(string(line[1:]), 10, 64)
		if err != nil {
			return 0, errFrame
		}
		if n < 0 {
			return f.end(), nil
		}
		f.skip = n + 2
		return 0, nil
	case '%':
		each = 2
	case '>':
		f.push = f.push || len(f.open) == 0
	case '*', '~':
	default:
		return 0, errFrame
	}
	n, err := strconv.ParseInt(string(line[1:]), 10, 64)
	if err != nil {
		return 0, errFrame
	}
	if n <= 0 {
		return f.end(), nil
	}
	f.open = append(f.open, n*each)
	return 0, nil
}

// end ends a value, and the arrays it was the last of.
func (f *frames) end() int64 {
	for len(f.open) > 0 {
		last := len(f.open) - 1
		if f.open[last]--; f.open[last] > 0 {
			return 0
		}
		f.open = f.open[:last]
	}
	if f.push {
		f.push = false
		return 0
	}
	return 1
}
