package forwardauthtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// patience is the timeout of a response.
const patience = 20 * time.Second

// Answer is a response as the client received it.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Passed reports whether the response is from the application.
func (a *Answer) Passed() bool { return len(a.Header[saw]) > 0 }

// asked returns the method and target that the application received.
func (a *Answer) asked() (method, target string) {
	line, _, _ := strings.Cut(a.Header.Get(saw), " key=")
	method, target, _ = strings.Cut(line, " ")
	return method, target
}

func (a *Answer) String() string { return fmt.Sprintf("%d %v %s", a.Status, a.Header, a.Body) }

// client is a client with its own source address.
type client struct {
	t    testing.TB
	from string
	to   string
}

func (c *client) dial() (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.from)}, Timeout: patience}
	conn, err := d.Dial("tcp", c.to)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(patience))
	}
	return conn, err
}

// ask sends a request verbatim, on a new connection: the target is not parsed, and headers are lines.
func (c *client) ask(method, target string, headers ...string) *Answer {
	c.t.Helper()
	return c.askWithBody(method, target, "", headers...)
}

func (c *client) askWithBody(method, target, body string, headers ...string) *Answer {
	c.t.Helper()
	conn, err := c.dial()
	if err != nil {
		return &Answer{Body: err.Error()}
	}
	defer conn.Close()
	lines := append([]string{"Host: example.com", "Connection: close"}, headers...)
	if body != "" {
		lines = append(lines, fmt.Sprintf("Content-Length: %d", len(body)))
	}
	if _, err := io.WriteString(conn, text(method, target, lines)+body); err != nil {
		c.t.Logf("%s %s: %v", method, target, err) // there may be a response nevertheless
	}
	return c.read(bufio.NewReader(conn), method)
}

func text(method, target string, lines []string) string {
	return method + " " + target + " HTTP/1.1\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// read reads a response. A connection that is closed without a response returns status 0.
func (c *client) read(r *bufio.Reader, method string) *Answer {
	c.t.Helper()
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	for err == nil && resp.StatusCode == http.StatusContinue {
		resp, err = http.ReadResponse(r, &http.Request{Method: method})
	}
	if err != nil {
		return &Answer{Body: err.Error()}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		body = fmt.Appendf(body, " (%v)", err)
	}
	return &Answer{resp.StatusCode, resp.Header, string(body)}
}
