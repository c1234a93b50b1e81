package redisstore

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// TestFrames: values are counted however they are cut into parts.
func TestFrames(t *testing.T) {
	for text, want := range map[string]int64{
		"+OK\r\n": 1, "-ERR x\r\n:1\r\n": 2, "$-1\r\n": 1, "$0\r\n\r\n": 1, "$5\r\na\r\nbc\r\n": 1, "*-1\r\n": 1, "*0\r\n": 1,
		"*2\r\n$1\r\na\r\n*2\r\n:1\r\n:2\r\n_\r\n": 2, "%1\r\n+a\r\n*1\r\n:1\r\n": 1, "~2\r\n#t\r\n,1.5\r\n": 1,
		">2\r\n+message\r\n$1\r\nx\r\n": 0, "*1\r\n>1\r\n+a\r\n": 1, "=7\r\ntxt:a\r\n\r\n(12\r\n": 2, "*3\r\n:1\r\n": 0, "$3\r\nab": 0, "+O": 0,
	} {
		for size := 1; size <= len(text); size++ {
			var f frames
			got := int64(0)
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				ended, err := f.feed([]byte(rest[:n]))
				if err != nil {
					t.Fatalf("%q: %v", text, err)
				}
				got, rest = got+ended, rest[n:]
			}
			if got != want {
				t.Errorf("%q in parts of %d: %d values, want %d", text, size, got, want)
			}
		}
	}
	for _, text := range []string{"\r\n", "x\r\n", "$x\r\n", "*\r\n", "HTTP/1.1 400\r\n", strings.Repeat("+", 1<<17)} {
		var f frames
		if _, err := f.feed([]byte(text)); !errors.Is(err, errFrame) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

// TestCountedConn: replies pass up to as many as there were commands, and messages as they come.
func TestCountedConn(t *testing.T) {
	ping := "*1\r\n$4\r\nPING\r\n"
	for _, tt := range []struct {
		name, sent, came string
		want             error
	}{
		{"as many", ping + ping, "+PONG\r\n+PONG\r\n", nil},
		{"fewer", ping + ping, "+PONG\r\n", nil},
		{"more", ping, "+PONG\r\n+PONG\r\n", errSurplus},
		{"unasked", "", "+PONG\r\n", errSurplus},
		{"messages", ping, ">1\r\n+a\r\n+PONG\r\n>1\r\n+a\r\n", nil},
		{"no RESP3", ping, "-ERR unknown command 'HELLO'\r\n*1\r\n+message\r\n", nil},
		{"something else", ping, "HTTP/1.1 400 Bad Request\r\n", errFrame},
	} {
		near, far := net.Pipe()
		c := &countedConn{Conn: near}
		read := make(chan struct{})
		go func() {
			b := make([]byte, 1000)
			for got := 0; got < len(tt.sent); {
				n, err := far.Read(b)
				if err != nil {
					break
				}
				got += n
			}
			close(read)
			_, _ = far.Write([]byte(tt.came))
		}()
		if tt.sent != "" {
			if _, err := c.Write([]byte(tt.sent)); err != nil {
				t.Fatal(err)
			}
		}
		<-read
		n, err := c.Read(make([]byte, 1000))
		if !errors.Is(err, tt.want) || tt.want == nil && n != len(tt.came) {
			t.Errorf("%s: %d bytes, %v, want %v", tt.name, n, err, tt.want)
		}
		if tt.want != nil {
			if _, err := near.Write(nil); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%s: it was left open", tt.name)
			}
		}
		_ = far.Close()
	}
}
