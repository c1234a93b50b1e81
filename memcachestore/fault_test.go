package memcachestore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
	"github.com/sluiceproject/sluice/memcachestore"
)

// short is a timeout that a test can wait for when no reply arrives.
const short = 50 * time.Millisecond

// answering starts a server that sends these replies to reads and writes. KEY and NUMBER are replaced by those of the
// command.
func answering(t *testing.T, read, write string) (addr string) {
	return tcptest.Serve(t, func(c net.Conn) {
		for r := bufio.NewReader(c); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			words := strings.Fields(line)
			answer := read
			if words[0] == "ms" {
				size, _ := strconv.Atoi(words[2])
				_, _ = r.Discard(size + 2)
				answer = write
			}
			number := words[len(words)-1][1:]
			answer = strings.NewReplacer("KEY", words[1], "NUMBER", number).Replace(answer)
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	})
}

// Valid replies to the read and the write of a new key.
const (
	goodRead  = "EN kKEY ONUMBER\r\n"
	goodWrite = "HD kKEY ONUMBER\r\n"
)

// refused applies a take and fails the test unless the error wraps ErrUnavailable.
func refused(t *testing.T, what string, s *memcachestore.Store, take sluice.Take) {
	t.Helper()
	out := []sluice.Decision{{}}
	err := s.Apply(ctx, []sluice.Take{take}, out)
	if !errors.Is(err, sluice.ErrUnavailable) || out[0].Allowed {
		t.Errorf("%s: %+v, error %v, want one that wraps ErrUnavailable", what, out[0], err)
	}
}

// TestGarbage checks that any reply that does not match its command is an error and never an admission.
func TestGarbage(t *testing.T) {
	for _, text := range []string{
		"\r\n", "\n", " \r\n", "EN\n", "EN\r\n", "EN kKEY\r\n", "EN ONUMBER\r\n", "EN kother ONUMBER\r\n", "EN kKEY O1\r\n",
		"EN kKEY ONUMBER", "EN kKEY ONUMBER\n", "EN  kKEY ONUMBER\r\n", "EN kKEY ONUMBER W\r\n", "EN kKEY ONUMBERx\r\n",
		"en kKEY ONUMBER\r\n", "HD kKEY ONUMBER\r\n", "NS kKEY ONUMBER\r\n", "EX kKEY ONUMBER\r\n", "MN\r\n", "END\r\n",
		"ERROR\r\n", "CLIENT_ERROR bad\r\n", "SERVER_ERROR out of memory\r\n", "STORED\r\n", "VALUE KEY 0 1\r\nx\r\nEND\r\n",
		"VA 1 c1 kKEY ONUMBER\r\nx\r\n", "VA 5 c1 kKEY ONUMBER\r\nhello\r\n", "VA 0 c1 kKEY ONUMBER\r\n\r\n",
		"VA c1 kKEY ONUMBER\r\nx\r\n", "VA -1 c1 kKEY ONUMBER\r\nx\r\n", "VA +1 c1 kKEY ONUMBER\r\nx\r\n",
		"VA 99999999999999999999999 c1 kKEY ONUMBER\r\nx\r\n", "VA 1048576 c1 kKEY ONUMBER\r\n", "VA 1 kKEY ONUMBER\r\nx\r\n",
		"VA 1 c0 kKEY ONUMBER\r\nx\r\n", "VA 1 cx kKEY ONUMBER\r\nx\r\n", "VA 1 c1 kKEY ONUMBER\r\nxxx\r\n",
		"VA 9 c1 kKEY ONUMBER\r\n\x01\x00\x00\x00\x00\x00\x00\x00\x00\r\n",
		"VA 9 c1 kKEY ONUMBER\r\n\x02\x00\x00\x00\x00\x00\x00\x00\x00\r\n",
		strings.Repeat("x", 100_000), strings.Repeat("EN kKEY ONUMBER\r\n", 2),
		"-ERR unknown command\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n",
	} {
		take := sluice.Take{Rule: newRule("r", window(5)), Key: "k", Cost: 1}
		s := openStore(t, memcachestore.Config{Addrs: []string{answering(t, text, goodWrite)}, Timeout: short})
		refused(t, fmt.Sprintf("%.60q to a read", text), s, take)
		if text != goodWrite {
			s = openStore(t, memcachestore.Config{Addrs: []string{answering(t, goodRead, text)}, Timeout: short})
			refused(t, fmt.Sprintf("%.60q to a write", text), s, take)
		}
	}
	s := openStore(t, memcachestore.Config{Addrs: []string{answering(t, goodRead, goodWrite)}})
	if d := apply(t, s, sluice.Take{Rule: newRule("r", window(5)), Key: "k", Cost: 1})[0]; !d.Allowed {
		t.Errorf("valid replies: %+v", d)
	}
}

// TestOthersValue: a server, or a proxy in front of it, replies with another key's value. The checksum covers the key.
func TestOthersValue(t *testing.T) {
	server := memcachetest.Start(t)
	rule := newRule("r", window(5))
	real := openStore(t, memcachestore.Config{Addrs: []string{server.Addr}})
	apply(t, real, sluice.Take{Rule: rule, Key: "a", Cost: 5})
	value := raw(t, server, real.ItemName(rule, "a"))
	s := openStore(t, memcachestore.Config{
		Addrs:   []string{answering(t, fmt.Sprintf("VA %d c7 kKEY ONUMBER\r\n%s\r\n", len(value), value), goodWrite)},
		Timeout: short,
	})
	if d := apply(t, s, sluice.Take{Rule: rule, Key: "a"})[0]; d.Remaining != 0 {
		t.Errorf("its own value: %+v", d)
	}
	refused(t, "another key's value", s, sluice.Take{Rule: rule, Key: "b", Cost: 1})
	refused(t, "another rule's value", s, sluice.Take{Rule: newRule("s", window(5)), Key: "a", Cost: 1})
}

// raw returns the value of a stored key.
func raw(t *testing.T, server *memcachetest.Server, name string) string {
	t.Helper()
	c, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	var size int
	r := bufio.NewReader(c)
	if _, err = fmt.Fprintf(c, "mg %s v\r\n", name); err == nil {
		_, err = fmt.Fscanf(r, "VA %d\r\n", &size)
	}
	b := make([]byte, size)
	if _, bad := io.ReadFull(r, b); err != nil || bad != nil {
		t.Fatal(err, bad)
	}
	return string(b)
}

// TestDamaged checks that a value that cannot be decoded is an error, not a reset limit, until an operator resets the
// key.
func TestDamaged(t *testing.T) {
	server := memcachetest.Start(t)
	s := openStore(t, memcachestore.Config{Addrs: []string{server.Addr}})
	rule := newRule("r", window(5))
	take := sluice.Take{Rule: rule, Key: "k", Cost: 1}
	if answer := server.Ask("ms " + s.ItemName(rule, "k") + " 7 T100\r\ngarbage"); answer != "HD" {
		t.Fatal(answer)
	}
	refused(t, "a damaged value", s, take)
	if err := s.Block(ctx, sluice.Bucket{Rule: rule, Key: "k"}, time.Hour); !errors.Is(err, sluice.ErrUnavailable) {
		t.Errorf("block: %v", err)
	}
	if err := s.Reset(ctx, sluice.Bucket{Rule: rule, Key: "k"}); err != nil {
		t.Fatal(err)
	}
	if d := apply(t, s, take)[0]; d.Remaining != 4 {
		t.Errorf("after a reset: %+v", d)
	}
}

// cutting is a proxy that closes the connection after a number of bytes of the server's replies.
func cutting(t *testing.T, to string, after *atomic.Int64) (addr string) {
	return tcptest.Serve(t, func(c net.Conn) {
		up, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer func() { _ = up.Close() }()
		go func() { _, _ = io.Copy(up, c) }()
		_, _ = io.CopyN(c, up, after.Load())
	})
}

// TestTruncated cuts replies at any position.
func TestTruncated(t *testing.T) {
	server := memcachetest.Start(t)
	rule := newRule("r", window(1000))
	direct := openStore(t, memcachestore.Config{Addrs: []string{server.Addr}})
	apply(t, direct, sluice.Take{Rule: rule, Key: "k", Cost: 1})
	var after atomic.Int64
	addr := cutting(t, server.Addr, &after)
	failed := 0
	for n := range int64(200) {
		after.Store(n)
		s := openStore(t, memcachestore.Config{Addrs: []string{addr}})
		before := spent(t, direct, rule, "k")
		out := []sluice.Decision{{}}
		err := s.Apply(ctx, []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, out)
		charged := spent(t, direct, rule, "k") - before
		switch {
		case err == nil && (!out[0].Allowed || charged != 1):
			t.Errorf("cut after %d bytes: %+v, and charged %d", n, out[0], charged)
		case err != nil && (!errors.Is(err, sluice.ErrUnavailable) || charged > 1):
			t.Errorf("cut after %d bytes: charged %d, error %v", n, charged, err)
		case err != nil:
			failed++
		}
	}
	if failed < 80 || failed == 200 {
		t.Errorf("%d of 200 calls failed: the replies were not cut", failed)
	}
}

// TestNobodyThere: a port without a listener, a server that never replies, and one that closes connections.
func TestNobodyThere(t *testing.T) {
	for what, addr := range map[string]string{
		"refuses":      tcptest.FreeAddress(t),
		"stalls":       tcptest.Serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }),
		"hangs up":     tcptest.Serve(t, func(net.Conn) {}),
		"is no socket": "/nonexistent/socket",
	} {
		s := openStore(t, memcachestore.Config{Addrs: []string{addr}, Timeout: short})
		rule := newRule("r", window(5))
		refused(t, what, s, sluice.Take{Rule: rule, Key: "k", Cost: 1})
		refused(t, what+", for a peek", s, sluice.Take{Rule: rule, Key: "k"})
		for verb, err := range map[string]error{
			"reset": s.Reset(ctx, sluice.Bucket{Rule: rule, Key: "k"}), "block": s.Block(ctx, sluice.Bucket{Rule: rule, Key: "k"}, time.Hour), "ping": s.Ping(ctx),
		} {
			if !errors.Is(err, sluice.ErrUnavailable) {
				t.Errorf("%s: %s: error %v", what, verb, err)
			}
		}
	}
}

// TestCallersContext checks that a caller's deadline or cancellation ends a call without a reply.
func TestCallersContext(t *testing.T) {
	asked := make(chan struct{}, 10)
	s := openStore(t, memcachestore.Config{Addrs: []string{tcptest.Serve(t, func(c net.Conn) {
		_, _ = bufio.NewReader(c).ReadString('\n')
		asked <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	})}})
	takes, out := []sluice.Take{{Rule: newRule("r", window(5)), Key: "k", Cost: 1}}, make([]sluice.Decision, 1)
	late, stop := context.WithTimeout(ctx, short)
	defer stop()
	err := s.Apply(late, takes, out)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, sluice.ErrUnavailable) {
		t.Errorf("deadline: error %v", err)
	}
	<-asked
	// One caller holds the key, another waits for it. Both are cancelled.
	first, cancelFirst := context.WithCancel(ctx)
	second, cancelSecond := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- s.Apply(first, takes, make([]sluice.Decision, 1)) }()
	<-asked
	go func() { ended <- s.Apply(second, takes, make([]sluice.Decision, 1)) }()
	cancelSecond()
	if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, sluice.ErrUnavailable) {
		t.Errorf("cancelled while waiting: error %v", err)
	}
	cancelFirst()
	if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, sluice.ErrUnavailable) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestDiesMidCall kills the server between a read and the write that follows. The server restarts empty, and the store
// reconnects.
func TestDiesMidCall(t *testing.T) {
	server := memcachetest.Start(t)
	s, meddle := meddled(t, server.Addr)
	rule := newRule("r", window(5))
	take := sluice.Take{Rule: rule, Key: "k", Cost: 1}
	apply(t, s, take)
	meddle(server.Kill)
	refused(t, "killed before the write", s, take)
	refused(t, "killed", s, take)
	server.Restart()
	for range 5 {
		if d := apply(t, s, take)[0]; !d.Allowed {
			t.Errorf("after a restart, which loses the state: %+v", d)
		}
	}
	// Connections that were closed unnoticed are replaced if resending is harmless.
	server.Restart()
	if d := apply(t, s, take)[0]; d.Remaining != 4 {
		t.Errorf("after another restart: %+v", d)
	}
}

// TestClose checks that later calls and calls in flight return ErrClosed.
func TestClose(t *testing.T) {
	asked := make(chan struct{}, 10)
	s := openStore(t, memcachestore.Config{Addrs: []string{tcptest.Serve(t, func(c net.Conn) {
		_, _ = bufio.NewReader(c).ReadString('\n')
		asked <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	})}})
	takes := []sluice.Take{{Rule: newRule("r", window(5)), Key: "k", Cost: 1}}
	ended := make(chan error, 1)
	go func() { ended <- s.Apply(ctx, takes, make([]sluice.Decision, 1)) }()
	<-asked
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-ended; !errors.Is(err, sluice.ErrClosed) {
		t.Errorf("call in flight: error %v", err)
	}
	if err := s.Apply(ctx, takes, make([]sluice.Decision, 1)); !errors.Is(err, sluice.ErrClosed) {
		t.Errorf("call after Close: error %v", err)
	}
}
