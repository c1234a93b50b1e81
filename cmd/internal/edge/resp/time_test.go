package resp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/resp"
	"github.com/sluiceproject/sluice/memstore"
)

// pipes is a listener of in-memory connections, which use the virtual clock of a synctest bubble.
type pipes struct {
	waiting chan net.Conn
	closed  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.waiting:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p *pipes) dial() net.Conn {
	mine, theirs := net.Pipe()
	p.waiting <- theirs
	return mine
}

// inBubble runs a test in a synctest bubble.
func inBubble(t *testing.T, cfg resp.Config, f func(t *testing.T, p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		limiter, err := sluice.NewWithRules(memstore.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Log = slog.New(slog.DiscardHandler)
		s, err := resp.New(limiter, cfg)
		if err != nil {
			t.Fatal(err)
		}
		p := &pipes{make(chan net.Conn), make(chan struct{})}
		done := make(chan error, 1)
		go func() { done <- s.Serve(p) }()
		f(t, p)
		if err := s.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// lasts returns the time until the server closes the connection of a client with this behaviour.
func lasts(t *testing.T, p *pipes, do func(c net.Conn) error) time.Duration {
	t.Helper()
	c := p.dial()
	defer c.Close()
	began := time.Now()
	if do != nil {
		if err := do(c); err != nil {
			return time.Since(began)
		}
	}
	_, _ = io.Copy(io.Discard, c)
	return time.Since(began)
}

// drip sends bytes one by one at an interval and reads the replies.
func drip(text string, apart time.Duration) func(net.Conn) error {
	return func(c net.Conn) error {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, c)
		}()
		for i := range len(text) {
			select {
			case <-time.After(apart):
			case <-ended:
				return io.EOF
			}
			if _, err := io.WriteString(c, text[i:i+1]); err != nil {
				return err
			}
		}
		<-ended
		return nil
	}
}

func TestTimes(t *testing.T) {
	const ping = "*1\r\n$4\r\nPING\r\n"
	cfg := resp.Config{IdleTime: time.Minute, CommandTime: 10 * time.Second}
	for name, tt := range map[string]struct {
		do   func(net.Conn) error
		want time.Duration
	}{
		"says nothing":                         {nil, time.Minute},
		"says something and then nothing":      {drip(ping, 100*time.Millisecond), 14*100*time.Millisecond + time.Minute},
		"takes its time between commands":      {drip("\n\n\n", 40*time.Second), 3*40*time.Second + time.Minute},
		"is slow":                              {drip(ping+ping, 600*time.Millisecond), 28*600*time.Millisecond + time.Minute},
		"is too slow":                          {drip(ping, 2*time.Second), 12 * time.Second}, // 10 s after the first byte
		"begins and leaves off":                {drip("*", time.Second), 11 * time.Second},
		"begins another and leaves off":        {drip(ping+"*", 500*time.Millisecond), 17500 * time.Millisecond},
		"is slow in a long line of empty ones": {drip(strings.Repeat("\n", 30)+"P", 5*time.Second), 31*5*time.Second + 10*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, cfg, func(t *testing.T, p *pipes) {
				if got := lasts(t, p, tt.do); got != tt.want {
					t.Errorf("a client that %s is disconnected after %v, want %v", name, got, tt.want)
				}
			})
		})
	}
}

// A client that does not authenticate in time is disconnected, whatever else it sends.
func TestPasswordInTime(t *testing.T) {
	cfg := resp.Config{Password: password("x"), IdleTime: time.Minute, CommandTime: 10 * time.Second}
	inBubble(t, cfg, func(t *testing.T, p *pipes) {
		if got := lasts(t, p, nil); got != 10*time.Second {
			t.Errorf("a silent client is disconnected after %v", got)
		}
		if got := lasts(t, p, drip(strings.Repeat("PING\n", 100), time.Second)); got != 10*time.Second {
			t.Errorf("a client that sends other commands is disconnected after %v", got)
		}
		if got := lasts(t, p, drip("AUTH x\n", time.Second)); got != 67*time.Second {
			t.Errorf("an authenticated client is disconnected after %v", got)
		}
	})
}

// A client that does not read its replies is disconnected.
func TestUnreadAnswers(t *testing.T) {
	inBubble(t, resp.Config{CommandTime: 10 * time.Second}, func(t *testing.T, p *pipes) {
		c := p.dial()
		defer c.Close()
		began := time.Now()
		for { // until the server stops reading and closes the connection
			_ = c.SetWriteDeadline(time.Now().Add(time.Hour))
			if _, err := io.WriteString(c, strings.Repeat("PING\n", 1000)); err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("not disconnected within an hour")
				}
				break
			}
		}
		if got := time.Since(began); got < 5*time.Second || got > 10*time.Second {
			t.Errorf("a client that does not read is disconnected after %v", got)
		}
	})
}

// Drain executes the commands already received and closes the connections.
func TestDrain(t *testing.T) {
	s, address := start(t, memstore.New(), resp.Config{})
	const commands = 3000
	busy, idle := dial(t, address), newAsker(t, address)
	if got := idle.throttle("k", 1, 1, 60); got[0] != 0 {
		t.Fatal(got)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(busy, strings.Repeat(array("CL.THROTTLE", "k", "99999", "1", "60"), commands))
		sent <- err
	}()
	r := bufio.NewReader(busy)
	for range 10 {
		if _, err := readFive(r); err != nil {
			t.Fatal(err)
		}
	}
	answered := make(chan int, 1)
	go func() {
		n := 10
		for ; ; n++ {
			if _, err := readFive(r); err != nil {
				break
			}
		}
		answered <- n
	}()
	if err := <-sent; err != nil { // received by the kernel
		t.Fatal(err)
	}
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if n := <-answered; n != commands {
		t.Errorf("%d of %d commands got a reply", n, commands)
	}
	if _, err := idle.read.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("an idle client gets %v", err)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("the listener is not closed")
	}
}

// Commands in the receive buffer are executed too.
func TestDrainOfWhatWaits(t *testing.T) {
	slow := &meeting{Store: memstore.New(), miss: -1, met: make(chan struct{})}
	limiter, err := sluice.NewWithRules(slow, nil, sluice.WithStoreTimeout(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	s, address := startServer(t, limiter, resp.Config{})
	c := dial(t, address)
	const commands = 200
	for i := range commands {
		if _, err := io.WriteString(c, array("CL.THROTTLE", fmt.Sprint(i), "1", "1", "60")); err != nil {
			t.Fatal(err)
		}
	}
	for slow.asked() == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the store is not called")
		}
	}
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	for { // until the drain has begun
		late, err := net.Dial("tcp", address)
		if err != nil {
			break
		}
		late.Close()
	}
	close(slow.met)
	r := bufio.NewReader(c)
	for i := range commands {
		if got, err := readFive(r); err != nil || got[0] != 0 {
			t.Fatalf("command %d: %v, %v", i, got, err)
		}
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after the replies: %v", err)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// Connections that are not done in time are closed, even while a store call hangs.
func TestDrainInTime(t *testing.T) {
	stuck := &meeting{Store: memstore.New(), miss: -1}
	limiter, err := sluice.NewWithRules(stuck, nil, sluice.WithStoreTimeout(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	s, address := startServer(t, limiter, resp.Config{})
	c := dial(t, address)
	if _, err := io.WriteString(c, "CL.THROTTLE k 1 1 60\nCL.THROTTLE l 1 1 60\n"); err != nil {
		t.Fatal(err)
	}
	for stuck.asked() < 2 {
		if t.Context().Err() != nil {
			t.Fatal("the store is not called")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Drain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A client that keeps sending does not delay the shutdown beyond maxLinger.
func TestDrainOfTheTalkative(t *testing.T) {
	inBubble(t, resp.Config{}, func(t *testing.T, p *pipes) {
		c, gone := p.dial(), make(chan struct{})
		go func() {
			defer close(gone)
			defer c.Close()
			r := bufio.NewReader(c)
			for {
				if _, err := io.WriteString(c, "PING\n"); err != nil {
					return
				}
				if _, err := r.ReadString('\n'); err != nil {
					return
				}
				<-time.After(10 * time.Millisecond)
			}
		}()
		<-time.After(time.Second)
		began := time.Now()
		t.Cleanup(func() {
			<-gone
			if took := time.Since(began); took < 1900*time.Millisecond || took > 2100*time.Millisecond {
				t.Errorf("the drain took %v", took)
			}
		})
	})
}
