package faultproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// echo starts a server that replies to each line with the same line.
func echo(t *testing.T) string {
	t.Helper()
	return tcptest.Serve(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

type client struct {
	net.Conn
	*bufio.Reader
}

func (c client) Read(b []byte) (int, error) { return c.Reader.Read(b) }

func dial(t *testing.T, p *Proxy) client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return client{c, bufio.NewReader(c)}
}

func (c client) send(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (c client) expect(t *testing.T, want string) {
	t.Helper()
	if got, err := c.ReadString('\n'); err != nil || got != want+"\n" {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// quiet fails if data arrives within a short time.
func (c client) quiet(t *testing.T) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if b, err := c.ReadByte(); err == nil {
		t.Errorf("%q came", b)
	}
	_ = c.SetReadDeadline(time.Time{})
}

func TestFaults(t *testing.T) {
	p := Start(t, echo(t))
	old := dial(t, p)
	old.send(t, "a")
	old.expect(t, "a")

	for _, f := range []Fault{{Silent: true}, {Mute: true}} {
		requests := p.Requests()
		p.Set(f)
		old.send(t, "b")
		old.quiet(t)
		if passed := p.Requests() > requests; passed != f.Mute {
			t.Errorf("%+v: requests passed: %v", f, passed)
		}
		p.Heal()
		old.expect(t, "b")
	}
	for _, f := range []Fault{{Slice: true}, {Rate: 1000}, {Delay: time.Millisecond, Jitter: time.Millisecond}} {
		p.Set(f)
		old.send(t, "hello")
		old.expect(t, "hello")
	}

	p.Set(Fault{Change: func(c *Conn, b []byte) []byte {
		b = append(c.Kept, b...)
		c.Kept = nil
		if strings.HasPrefix(string(b), "late") && len(b) == 5 {
			c.Kept = b
			return nil
		}
		return append(b, b...)
	}})
	old.send(t, "late")
	old.quiet(t)
	old.send(t, "x")
	for _, want := range []string{"late", "x", "late", "x"} {
		old.expect(t, want)
	}

	p.Set(Fault{Dead: true})
	old.send(t, "c")
	fresh := dial(t, p)
	fresh.send(t, "d")
	fresh.expect(t, "d")
	p.Heal()
	old.quiet(t)

	p.Set(Fault{Cut: 3})
	fresh.send(t, "abcdef")
	if got, err := io.ReadAll(fresh); string(got) != "abc" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("cut after three bytes: %q, %v", got, err)
	}

	last := dial(t, p)
	p.Set(Fault{Refuse: true})
	if _, err := last.ReadByte(); err == nil {
		t.Error("a connection survived Refuse")
	}
	if _, err := net.Dial("tcp", p.Addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refused: %v", err)
	}
	p.Heal()
	fresh = dial(t, p)
	fresh.send(t, "e")
	fresh.expect(t, "e")
	if p.Accepted() != 4 || p.Replies() == 0 {
		t.Errorf("%d connections, %d bytes of replies", p.Accepted(), p.Replies())
	}
}
