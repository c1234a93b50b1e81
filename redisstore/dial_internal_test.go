package redisstore

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// TestDialPace checks that an address is dialled in a burst, then at most 5 times per second until the server replies.
func TestDialPace(t *testing.T) {
	d, now := newDialer("tcp"), time.Now()
	passed := func(during time.Duration) (n int) {
		for end := now.Add(during); now.Before(end); now = now.Add(time.Millisecond) {
			if _, err := d.reserve("a", now); err == nil {
				n++
			} else if !errors.Is(err, errNotYet) {
				t.Fatal(err)
			}
		}
		return n
	}
	if n := passed(10 * time.Millisecond); n != 10 {
		t.Errorf("allowed %d of the first 10 dials", n)
	}
	if n := passed(10 * time.Second); n < 30 || n > 50+dialBurst-10 {
		t.Errorf("allowed %d dials in 10 s", n)
	}
	if _, err := d.reserve("b", now); err != nil {
		t.Errorf("another address: error %v", err)
	}
	for passed(time.Millisecond) == 0 { // otherwise the next dial may be due right now
	}
	now = now.Add(-time.Millisecond)
	d.answered("a", []byte("-ERR max number of clients reached\r\n"), nil)
	if _, err := d.reserve("a", now); !errors.Is(err, errNotYet) || !errors.Is(err, ServerError("ERR max number of clients reached")) {
		t.Errorf("after an error reply: error %v", err)
	}
	d.answered("a", []byte("%7\r\n"), nil)
	if n := passed(10 * time.Millisecond); n != 10 {
		t.Errorf("allowed %d of 10 dials after a reply", n)
	}
}

// TestDialTooLate checks that a connection that is ready too late for its caller is kept for the next one.
func TestDialTooLate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d, release := newDialer("tcp"), make(chan struct{})
	slow := &net.Dialer{ControlContext: func(context.Context, string, string, syscall.RawConn) error {
		<-release
		return nil
	}}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := d.dial(ctx, l.Addr().String(), slow, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("dial after the caller's deadline: error %v", err)
	}
	close(release)
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	never := &net.Dialer{ControlContext: func(context.Context, string, string, syscall.RawConn) error {
		return errors.New("dialled again")
	}}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 5000 { // it is kept a moment after it is accepted
		conn, err := d.dial(context.Background(), l.Addr().String(), never, nil)
		if err == nil {
			if got, want := conn.LocalAddr().String(), server.RemoteAddr().String(); got != want {
				t.Errorf("connection from %s, want %s", got, want)
			}
			conn.Close()
			return
		}
		<-tick.C
	}
	t.Error("the connection was not kept")
}
