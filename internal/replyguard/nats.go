package replyguard

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

const (
	// MaxNATSMessage is the largest message size that a NATS server can be configured to accept.
	MaxNATSMessage = 64 << 20
	// maxNATSLine is the maximum length of a line; INFO, the longest, lists the servers of a cluster.
	maxNATSLine = 64 << 10
)

// NATS dials NATS servers. Its connections reject messages that exceed the bounds. It performs the TLS handshake
// itself, because messages can only be parsed above TLS.
type NATS struct {
	Context context.Context // cancels dialling and closes connections
	Timeout time.Duration   // for connecting, TLS and the server's first line
	TLS     *tls.Config     // nil: the system's CAs, if the server requires TLS
	Secure  bool            // require TLS
	// Name is the server name for the certificate of a server whose address is an IP address, learnt from another
	// server.
	Name string
}

// SkipTLSHandshake reports whether the client must skip the TLS handshake, which is always so: Dial performs it if
// necessary.
func (d *NATS) SkipTLSHandshake() bool { return true }

// Dial connects to a server, and returns when its first line has arrived.
func (d *NATS) Dial(network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.Context, d.Timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(d.Context, func() { _ = conn.Close() })
	until, _ := ctx.Deadline()
	_ = conn.SetDeadline(until)
	guarded, err := d.greet(ctx, conn, addr)
	if err != nil {
		stop()
		_ = conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	guarded.stop = stop
	return guarded, nil
}

// greet reads the server's first line, and performs the TLS handshake if the server or the client requires it.
func (d *NATS) greet(ctx context.Context, conn net.Conn, addr string) (*natsConn, error) {
	c := &natsConn{Conn: conn, addr: addr}
	room, n := make([]byte, 4<<10), 0
	for bytes.IndexByte(room[:n], '\n') < 0 {
		if n == len(room) {
			room = append(room, make([]byte, len(room))...)
		}
		got, err := conn.Read(room[n:])
		if bad := c.scan.feed(room[n : n+got]); bad != nil {
			return nil, c.reject(bad)
		}
		if n += got; err != nil {
			return nil, fmt.Errorf("NATS %s: no INFO: %w", addr, err)
		}
	}
	c.ahead = room[:n]
	line, rest, _ := bytes.Cut(c.ahead, []byte("\n"))
	var info struct {
		TLSRequired  bool `json:"tls_required"`
		TLSAvailable bool `json:"tls_available"`
	}
	_, text, _ := bytes.Cut(line, []byte(" "))
	if err := json.Unmarshal(text, &info); err != nil {
		return nil, fmt.Errorf("NATS %s: INFO: %w", addr, err)
	}
	if !info.TLSRequired && (!d.Secure || !info.TLSAvailable) {
		return c, nil
	}
	if len(rest) > 0 {
		return nil, c.reject(fmt.Errorf("%d bytes after INFO, before TLS", len(rest)))
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if d.TLS != nil {
		secure = d.TLS.Clone()
	}
	if secure.ServerName == "" {
		secure.ServerName, _, _ = net.SplitHostPort(addr)
		if d.Name != "" && net.ParseIP(secure.ServerName) != nil {
			secure.ServerName = d.Name
		}
	}
	private := tls.Client(conn, secure)
	if err := private.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("NATS %s: TLS: %w", addr, err)
	}
	c.Conn = private
	return c, nil
}

// natsConn is a guarded connection.
type natsConn struct {
	net.Conn
	addr     string
	ahead    []byte // read, scanned and not returned to the reader yet
	scan     natsScanner
	rejected error
	stop     func() bool
}

func (c *natsConn) Read(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	if c.rejected != nil {
		return 0, c.rejected
	}
	n, err := c.Conn.Read(b)
	if bad := c.scan.feed(b[:n]); bad != nil {
		c.rejected = c.reject(bad)
		_ = c.Close()
		return 0, c.rejected
	}
	return n, err
}

func (c *natsConn) Close() error {
	if c.stop != nil {
		c.stop()
	}
	return c.Conn.Close()
}

func (c *natsConn) reject(why error) error {
	bounds.NATSMessage.Reached()
	return &Error{Dependency: "NATS", Addr: c.addr, Reason: why.Error()}
}

// natsScanner parses the NATS protocol just far enough to find lengths.
type natsScanner struct {
	part []byte // the beginning of an incomplete line
	skip int    // remaining bytes of a payload
	tail int    // remaining bytes of the line ending after it
}

const lineEnd = "\r\n"

func (s *natsScanner) feed(b []byte) error {
	for len(b) > 0 {
		switch {
		case s.skip > 0:
			n := min(s.skip, len(b))
			s.skip -= n
			b = b[n:]
		case s.tail > 0:
			if b[0] != lineEnd[len(lineEnd)-s.tail] {
				return fmt.Errorf("byte %#02x after a message, want a line ending", b[0])
			}
			s.tail--
			b = b[1:]
		default:
			end := bytes.IndexByte(b, '\n')
			if end < 0 && len(s.part)+len(b) > maxNATSLine || end >= 0 && len(s.part)+end+1 > maxNATSLine {
				return fmt.Errorf("line of more than %d bytes", maxNATSLine)
			}
			if end < 0 {
				s.part = append(s.part, b...)
				return nil
			}
			line := b[:end]
			if len(s.part) > 0 {
				s.part = append(s.part, line...)
				line, s.part = s.part, s.part[:0]
			}
			if err := s.line(line); err != nil {
				return err
			}
			b = b[end+1:]
		}
	}
	return nil
}

// line parses a control line.
func (s *natsScanner) line(b []byte) error {
	b, whole := bytes.CutSuffix(b, []byte("\r"))
	if !whole {
		return fmt.Errorf("line without a carriage return")
	}
	op, args, _ := bytes.Cut(b, []byte(" "))
	switch string(op) {
	case "MSG":
		return s.message(args, 3)
	case "HMSG":
		return s.message(args, 4)
	case "INFO", "PING", "PONG", "+OK", "-ERR":
		return nil
	}
	return fmt.Errorf("%.20q, which is not an operation of NATS", op)
}

// message parses the arguments of a message: subject, subscription, optionally a reply subject, the length of the
// headers if there are any, and the total length. fields is their number without the reply subject.
func (s *natsScanner) message(args []byte, fields int) error {
	var f [5][]byte
	n := 0
	for len(args) > 0 {
		var field []byte
		if field, args, _ = bytes.Cut(args, []byte(" ")); len(field) == 0 {
			continue
		}
		if n == len(f) {
			n++
			break
		}
		f[n] = field
		n++
	}
	if n != fields && n != fields+1 {
		return fmt.Errorf("message with %d arguments", n)
	}
	size, ok := natsNumber(f[n-1])
	if !ok || size > MaxNATSMessage {
		return fmt.Errorf("message of %.20s bytes, maximum %d", f[n-1], MaxNATSMessage)
	}
	if fields == 4 {
		if headers, ok := natsNumber(f[n-2]); !ok || headers > size {
			return fmt.Errorf("message of %d bytes with headers of %.20s", size, f[n-2])
		}
	}
	if _, ok := natsNumber(f[1]); !ok {
		return fmt.Errorf("message for subscription %.20q", f[1])
	}
	s.skip, s.tail = size, len(lineEnd)
	return nil
}

// natsNumber parses a decimal number.
func natsNumber(b []byte) (n int, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, len(b) > 0 && len(b) <= maxDigits
}
