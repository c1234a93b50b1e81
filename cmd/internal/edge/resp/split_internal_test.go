package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// script is a connection that delivers bytes in pieces and then ends.
type script struct {
	loop
	pieces [][]byte
	said   bytes.Buffer
}

func (s *script) Read(b []byte) (int, error) {
	for len(s.pieces) > 0 && len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	if len(s.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.pieces[0])
	s.pieces[0] = s.pieces[0][n:]
	return n, nil
}

func (s *script) Write(b []byte) (int, error) { return s.said.Write(b) }

var _ net.Conn = (*script)(nil)

// told returns the replies of a new server to bytes that arrive in pieces. Its clock does not advance.
func told(t testing.TB, pieces ...[]byte) []byte {
	t.Helper()
	store, err := memstore.Open(memstore.Config{Now: func() time.Time { return time.Unix(1e9, 0) }, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := sluice.NewWithRules(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(limiter, Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c := &script{pieces: pieces}
	s.newConn(c).serve()
	return c.said.Bytes()
}

// reply parses one reply and returns the rest.
func reply(b []byte) ([]byte, error) {
	line, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || len(line) == 0 {
		return nil, fmt.Errorf("no line in %.40q", b)
	}
	text := line[1:]
	switch line[0] {
	case '+', '-':
		if bytes.ContainsAny(text, "\r\n") {
			return nil, fmt.Errorf("%q", line)
		}
		return rest, nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return nil, err
	}
	switch line[0] {
	case ':':
		return rest, nil
	case '$':
		if len(rest) < n+2 || string(rest[n:n+2]) != "\r\n" {
			return nil, errors.New("bulk string without end")
		}
		return rest[n+2:], nil
	case '%':
		n *= 2
	case '*':
	default:
		return nil, fmt.Errorf("%q", line)
	}
	for ; n > 0 && err == nil; n-- {
		rest, err = reply(rest)
	}
	return rest, err
}

// The replies are valid and do not depend on how the bytes are split.
func FuzzSplit(f *testing.F) {
	for i, text := range []string{
		"PING\r\n", "*5\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$1\r\n5\r\n$1\r\n1\r\n$2\r\n60\r\n*1\r\n$4\r\nPING\r\n",
		"cl.throttle k 1 1 60\ncl.throttle k 1 1 60\ncl.throttle k 1 1 60 0\nHELLO 3\ncommand docs\nclient id\n",
		"*2\r\n$4\r\nECHO\r\n$3\r\n\r\n+\r\n*-1\r\n*0\r\n*1\r\n*1\r\n", "*1\r\n$99999\r\n", "echo \"a b\" 'c\r\n", "*1\r\n$4\r\nPINGPING", "\r\n\r\n*",
		"*3\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$7\r\nsetname\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "*16\r\n", "reset\nquit\nping\n",
		string(bytes.Repeat([]byte("x"), maxCommandBytes+1)), "*2\r\n$4\r\nECHO\r\n$8000\r\n" + string(bytes.Repeat([]byte("e"), 8000)) + "\r\nPING\n",
	} {
		f.Add([]byte(text), uint64(i))
	}
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		whole := told(t, bytes.Clone(b))
		r := rand.New(rand.NewPCG(seed, 0))
		most := 1 + r.IntN(40)
		var pieces [][]byte
		for rest := bytes.Clone(b); len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(most))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if split := told(t, pieces...); !bytes.Equal(whole, split) {
			t.Fatalf("whole: %q\nsplit: %q", whole, split)
		}
		for rest, err := whole, error(nil); len(rest) > 0; {
			if rest, err = reply(rest); err != nil {
				t.Fatalf("%v in %q", err, whole)
			}
		}
	})
}

// Every generated command gets one reply.
func TestRandomCommands(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	word := func() string {
		words := []string{"CL.THROTTLE", "cl.throttle", "PING", "ECHO", "k", "1", "60", "0", "-1", "", "HELLO", "3", "AUTH", "x\r\ny", "CLIENT", "ID", "COMMAND", "RESET", "SELECT"}
		return words[r.IntN(len(words))]
	}
	for range 300 {
		var text []byte
		commands := 1 + r.IntN(50)
		for range commands {
			n := 1 + r.IntN(7)
			text = fmt.Appendf(text, "*%d\r\n", n)
			for range n {
				w := word()
				text = fmt.Appendf(text, "$%d\r\n%s\r\n", len(w), w)
			}
		}
		got, n := told(t, text), 0
		for rest, err := got, error(nil); len(rest) > 0; n++ {
			if rest, err = reply(rest); err != nil {
				t.Fatalf("%v in %q", err, got)
			}
		}
		if n != commands {
			t.Fatalf("%d replies to %d commands: %q\n%q", n, commands, text, got)
		}
	}
}

// Limits are cached, up to maxLimits.
func TestLimitsAreBounded(t *testing.T) {
	all := limits{of: map[numbers]*limit{}}
	var mine recent
	for i := range int64(3 * maxLimits) {
		l, err := mine.get(&all, numbers{i, 1, 60})
		if err != nil || l.burst != i || l.built.Burst != i+1 {
			t.Fatalf("%d: %+v, %v", i, l, err)
		}
		again, err := all.get(numbers{i, 1, 60})
		if err != nil || again != l {
			t.Fatalf("%d was built again: %v", i, err)
		}
	}
	if len(all.of) != maxLimits {
		t.Errorf("%d limits are cached, want %d", len(all.of), maxLimits)
	}
	for _, n := range []numbers{{-1, 1, 1}, {1 << 50, 1, 1}, {0, 0, 1}, {0, 1, 0}} {
		if _, err := all.get(n); err == nil {
			t.Errorf("%+v is accepted", n)
		}
	}
	if len(all.of) != maxLimits {
		t.Errorf("%d limits are cached: invalid ones too", len(all.of))
	}
}
