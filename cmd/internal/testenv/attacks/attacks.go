// Package attacks is a corpus of hostile input from clients, upstreams, stores and files, with functions that run each
// attack against any address. Features that read input are tested against it; new attacks belong here and nowhere else.
//
// Vectors are data: request texts, response texts, header fields, path spellings, replies and rule files. HTTP and
// HTTP2 list attacks that need more than one message. They return an error only if the target cannot be reached or
// accepts input that it should have rejected; a target that closes the connection has defended itself.
package attacks

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// Attack is one attack on an address.
type Attack struct {
	Name string
	Run  func(ctx context.Context, to Target) error
}

// Target is an address under attack. Only Address is required.
type Target struct {
	Address string
	From    string      // local IP address of the attacker; empty: any
	TLS     *tls.Config // nil: without TLS
	Path    string      // of the requests; empty: "/"
	Method  string      // of the requests over HTTP/2; empty: GET
	Fields  []string    // additional header fields of requests over HTTP/2, name and value alternating
	Scale   float64     // scale factor for the number of messages of a flood; 0: 1
}

func (to Target) path() string {
	if to.Path == "" {
		return "/"
	}
	return to.Path
}

// times returns n times the scale, at least 1.
func (to Target) times(n int) int {
	if to.Scale == 0 {
		return n
	}
	return max(1, int(float64(n)*to.Scale))
}

// Dial connects to the target. The connection ends with ctx's deadline, if it has one.
func (to Target) Dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	if to.From != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(to.From)}
	}
	c, err := d.DialContext(ctx, "tcp", to.Address)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline)
	}
	if to.TLS == nil {
		return c, nil
	}
	s := tls.Client(c, to.TLS)
	if err := s.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return s, nil
}

// closeWrite closes the direction to the target, so that it sees the end of the input.
func closeWrite(c net.Conn) {
	if c, ok := c.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}

// LastPath is the path of the request that Say sends after a response on the same connection.
const LastPath = "/last"

const last = "GET " + LastPath + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

// ErrNoEnd is Say's error for a target that neither completes its response nor closes the connection.
var ErrNoEnd = errors.New("attacks: the response does not end")

// Say sends text on a new connection and returns the complete response until the target closes the connection. After
// the response it sends a request for LastPath, which shows whether both ends agree where requests start.
func Say(ctx context.Context, to Target, text string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := to.Dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, _ = io.WriteString(c, text) // the target may close the connection before everything is sent
	var all bytes.Buffer
	in := bufio.NewReader(io.TeeReader(c, &all))
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	for err == nil && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(in, &http.Request{Method: method})
	}
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		if !resp.Close {
			_, _ = io.WriteString(c, last)
		}
	}
	if _, end := io.Copy(io.Discard, in); errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(end, os.ErrDeadlineExceeded) {
		return all.String(), ErrNoEnd
	}
	return all.String(), nil
}

// SayHalf sends an incomplete text, closes its direction and returns the response.
func SayHalf(ctx context.Context, to Target, text string) (string, error) {
	c, err := to.Dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, _ = io.WriteString(c, text)
	closeWrite(c)
	b, _ := io.ReadAll(c)
	return string(b), nil
}

// Drop sends text and resets the connection without reading.
func Drop(ctx context.Context, to Target, text string) error {
	c, err := to.Dial(ctx)
	if err != nil {
		return err
	}
	_, _ = io.WriteString(c, text)
	if c, ok := c.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	return c.Close()
}
