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

// pipes is a listener without a network, whose connections know time as a bubble has it.
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

// inBubble runs a test of times.
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

// lasts is how long until the server hangs up on a client that does this. The client stops when it cannot.
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

// drip sends bytes one by one, so far apart, and reads the answers.
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
		"is too slow":                          {drip(ping, 2*time.Second), 12 * time.Second}, // ten after the first byte
		"begins and leaves off":                {drip("*", time.Second), 11 * time.Second},
		"begins another and leaves off":        {drip(ping+"*", 500*time.Millisecond), 17500 * time.Millisecond},
		"is slow in a long line of empty ones": {drip(strings.Repeat("\n", 30)+"P", 5*time.Second), 31*5*time.Second + 10*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, cfg, func(t *testing.T, p *pipes) {
				if got := lasts(t, p, tt.do); got != tt.want {
					t.Errorf("who %s is hung up on after %v, want %v", name, got, tt.want)
				}
			})
		})
	}
}

// Who does not show the password in time is not waited for, whatever it says instead.
func TestPasswordInTime(t *testing.T) {
	cfg := resp.Config{Password: password("x"), IdleTime: time.Minute, CommandTime: 10 * time.Second}
	inBubble(t, cfg, func(t *testing.T, p *pipes) {
		if got := lasts(t, p, nil); got != 10*time.Second {
			t.Errorf("who says nothing is waited for %v", got)
		}
		if got := lasts(t, p, drip(strings.Repeat("PING\n", 100), time.Second)); got != 10*time.Second {
			t.Errorf("who says something else is waited for %v", got)
		}
		if got := lasts(t, p, drip("AUTH x\n", time.Second)); got != 67*time.Second {
			t.Errorf("who has shown it is waited for %v", got)
		}
	})
}

// Who does not read its answers is given up.
func TestUnreadAnswers(t *testing.T) {
	inBubble(t, resp.Config{CommandTime: 10 * time.Second}, func(t *testing.T, p *pipes) {
		c := p.dial()
		defer c.Close()
		began := time.Now()
		for { // until the server does not read any more, and then has closed
			_ = c.SetWriteDeadline(time.Now().Add(time.Hour))
			if _, err := io.WriteString(c, strings.Repeat("PING\n", 1000)); err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("it waits for an hour")
				}
				break
			}
		}
		if got := time.Since(began); got < 5*time.Second || got > 10*time.Second {
			t.Errorf("who does not read is waited for %v", got)
		}
	})
}

// What has come is answered when the server ends, and then it ends.
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
	if err := <-sent; err != nil { // it has come as far as this machine
		t.Fatal(err)
	}
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if n := <-answered; n != commands {
		t.Errorf("%d of %d were answered", n, commands)
	}
	if _, err := idle.read.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("who was idle sees %v", err)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("it still listens")
	}
}

// What has come but was not read yet is answered too.
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
			t.Fatal("nobody asks")
		}
	}
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	for { // until it has begun
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
		t.Errorf("and then %v", err)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// Who is not done in time is cut off, also from a store that does not answer.
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
			t.Fatal("nobody asks")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Drain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Who goes on and on does not keep the server from ending.
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
				t.Errorf("it took %v", took)
			}
		})
	})
}
