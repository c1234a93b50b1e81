package resp

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// loop is a connection that delivers the same bytes repeatedly and counts replies.
type loop struct {
	net.Conn
	text  []byte
	at    int
	bytes int
}

func (l *loop) Read(b []byte) (int, error) {
	n := copy(b, l.text[l.at:])
	l.at = (l.at + n) % len(l.text)
	return n, nil
}

func (l *loop) Write(b []byte) (int, error) {
	l.bytes += len(b)
	return len(b), nil
}

func (*loop) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*loop) SetReadDeadline(time.Time) error  { return nil }
func (*loop) SetWriteDeadline(time.Time) error { return nil }

// looped returns a connection that sends commands for several keys, and the number of commands per round.
func looped(t testing.TB) (c *conn, l *loop, all *Counts, round int) {
	t.Helper()
	limiter, err := sluice.NewWithRules(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	all = new(Counts)
	s, err := New(limiter, Config{Counted: func(c Counts) {
		all.Allowed += c.Allowed
		all.Errors += c.Errors + c.Denied + c.Other
	}})
	if err != nil {
		t.Fatal(err)
	}
	l = &loop{}
	const keys = 1000
	for i := range keys {
		key := fmt.Sprintf("user-%07d", i)
		l.text = fmt.Appendf(l.text, "*5\r\n$11\r\nCL.THROTTLE\r\n$%d\r\n%s\r\n$6\r\n999999\r\n$2\r\n%d\r\n$4\r\n3600\r\n", len(key), key, 10+i%3)
	}
	return s.newConn(l), l, all, keys
}

func (c *conn) round() bool { return c.read() && c.answerAll() && c.flush() }

// A command does not allocate.
func TestNoAllocations(t *testing.T) {
	c, l, all, round := looped(t)
	turn := func() {
		for before := l.at; ; {
			if !c.round() {
				t.Fatal("the connection ended")
			}
			if l.at < before {
				return
			}
			before = l.at
		}
	}
	turn()
	turn()
	before := all.Allowed
	if n := testing.AllocsPerRun(20, turn); n > 0 {
		t.Errorf("%v allocations for %d commands", n, round)
	}
	if got := all.Allowed - before; got < int64(20*round) || all.Errors > 0 {
		t.Errorf("it measured %d commands of %d: %+v", got, 20*round, all)
	}
}

func BenchmarkCommand(b *testing.B) {
	c, _, all, _ := looped(b)
	b.ReportAllocs()
	for b.Loop() {
		for done := all.Allowed + 1000; all.Allowed < done; {
			if !c.round() {
				b.Fatal("the connection ended")
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(all.Allowed), "ns/command")
}
