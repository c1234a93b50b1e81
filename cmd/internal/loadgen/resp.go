package loadgen

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"time"
)

// RESP configures a target that uses the Redis protocol: CL.THROTTLE of redis-cell. Each caller has its own connection.
type RESP struct {
	URL                  *url.URL
	TLS                  *tls.Config
	Password             string // "" means none
	Key                  Pattern
	Burst, Count, Period int64
	Quantity             int64
}

type respTarget struct{ RESP }

// NewRESP returns a target that uses the Redis protocol. It returns an error if the server does not accept connections.
func NewRESP(ctx context.Context, cfg RESP) (Target, error) {
	if err := reach(ctx, cfg.URL.Host); err != nil {
		return nil, err
	}
	return &respTarget{cfg}, nil
}

func (t *respTarget) Close() error { return nil }

func (t *respTarget) Dial(ctx context.Context) (Caller, error) {
	c := &respCaller{of: &t.RESP}
	for _, n := range []int64{t.Burst, t.Count, t.Period, max(1, t.Quantity)} {
		c.numbers = appendBulk(c.numbers, strconv.AppendInt(nil, n, 10))
	}
	return c, c.connect(ctx)
}

type respCaller struct {
	of      *RESP
	conn    net.Conn // nil after an error
	in      *bufio.Reader
	out     []byte
	text    []byte
	numbers []byte // encoded arguments after the key
}

func (c *respCaller) Close() error {
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

func (c *respCaller) connect(ctx context.Context) (err error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	if c.of.TLS != nil {
		c.conn, err = (&tls.Dialer{NetDialer: &d, Config: c.of.TLS}).DialContext(ctx, "tcp", c.of.URL.Host)
	} else {
		c.conn, err = d.DialContext(ctx, "tcp", c.of.URL.Host)
	}
	if err != nil {
		c.conn = nil
		return err
	}
	c.in = bufio.NewReaderSize(c.conn, 16<<10)
	if c.of.Password == "" {
		return nil
	}
	if err = c.auth(ctx); err != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
	return err
}

func (c *respCaller) auth(ctx context.Context) error {
	defer c.until(ctx)()
	request := appendBulk(appendBulk([]byte("*2\r\n"), []byte("AUTH")), []byte(c.of.Password))
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	line, err := c.line()
	if err == nil && string(line) != "+OK" {
		err = fmt.Errorf("AUTH: %s", line)
	}
	return err
}

// until sets the deadline of the connection to that of ctx, and interrupts it when ctx is done. The caller must call the
// returned function afterwards.
func (c *respCaller) until(ctx context.Context) func() bool {
	deadline, _ := ctx.Deadline() // the zero time means no deadline
	_ = c.conn.SetDeadline(deadline)
	conn := c.conn
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

func (c *respCaller) Ask(ctx context.Context, keys []int64, answered func(Answer)) error {
	if c.conn == nil {
		if err := c.connect(ctx); err != nil {
			return err
		}
	}
	stop := c.until(ctx)
	err := c.exchange(keys, answered)
	// Close the connection after an error or timeout: late replies must not be read as those of later requests, and the
	// expired deadline must not apply to the next call.
	if !stop() || err != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
	return err
}

func (c *respCaller) exchange(keys []int64, answered func(Answer)) error {
	c.out = c.out[:0]
	for _, key := range keys {
		c.out = append(c.out, "*6\r\n$11\r\nCL.THROTTLE\r\n"...)
		c.text = c.of.Key.Append(c.text[:0], key)
		c.out = append(appendBulk(c.out, c.text), c.numbers...)
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return gone(err)
	}
	for range keys {
		a, err := c.answer()
		if err != nil {
			return gone(err)
		}
		answered(a)
	}
	return nil
}

func gone(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the server closed the connection")
	}
	return err
}

// answer reads a reply: an error, or five numbers of which the first is 1 if the request is denied.
func (c *respCaller) answer() (Answer, error) {
	line, err := c.line()
	if err != nil {
		return Answer{}, err
	}
	if text, ok := bytes.CutPrefix(line, []byte("-")); ok {
		return Answer{Failed, string(text)}, nil
	}
	if string(line) != "*5" {
		return Answer{}, fmt.Errorf("the reply %.40q is not a reply to CL.THROTTLE, which has five numbers", line)
	}
	a := Answer{Allowed, "allowed"}
	for i := range 5 {
		if line, err = c.line(); err != nil {
			return Answer{}, err
		}
		switch {
		case len(line) < 2 || line[0] != ':':
			return Answer{}, fmt.Errorf("the reply contains %.40q instead of a number", line)
		case i == 0 && string(line) != ":0":
			a = Answer{Denied, "denied"}
		}
	}
	return a, nil
}

// line reads a line without CRLF. It is valid until the next read.
func (c *respCaller) line() ([]byte, error) {
	b, err := c.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(b) < 2 || b[len(b)-2] != '\r' {
		return nil, fmt.Errorf("%.40q is not Redis' protocol", b)
	}
	return b[:len(b)-2], nil
}

func appendBulk(b, text []byte) []byte {
	b = strconv.AppendInt(append(b, '$'), int64(len(text)), 10)
	b = append(b, "\r\n"...)
	b = append(b, text...)
	return append(b, "\r\n"...)
}
