//go:build linux

package busytest

import (
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// proxy forwards connections to its address, and measures how long each request waits for its reply. A connection
// carries one request at a time.
type proxy struct {
	addr string

	t    *testing.T
	work sync.WaitGroup
	mu   sync.Mutex // guards the fields below
	idle sync.Cond  // signalled when no request waits for its reply
	open map[*passage]bool
	late overdue
	hold int // process that is stopped until its replies arrive; 0: none

	stopping sync.Mutex        // guards stopped, and is held while the process is being stopped
	stopped  map[*passage]bool // connections whose replies it is stopped for; there may be several
}

// overdue counts late replies.
type overdue struct {
	replies int
	most    time.Duration
}

// passage is a forwarded connection.
type passage struct {
	client, server net.Conn
	asked          time.Time // when the pending request was sent; zero: none is pending
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	stamped := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) { // applies to every accepted connection
		bad := raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_TIMESTAMPNS, 1)
		})
		return errors.Join(err, bad)
	}}
	l, err := stamped.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 { // the kernel starts to timestamp a moment later
		if err = stamps(l); !errors.Is(err, errUnstamped) {
			break
		}
		runtime.Gosched()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, addr: l.Addr().String(), open: make(map[*passage]bool), stopped: make(map[*passage]bool)}
	p.idle.L = &p.mu
	p.work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				t.Error(err)
				_ = client.Close()
				continue
			}
			c := &passage{client: client, server: server}
			p.mu.Lock()
			p.open[c] = true
			p.mu.Unlock()
			p.work.Go(func() { p.requests(c) })
			p.work.Go(func() { p.replies(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for c := range p.open {
			_ = c.client.Close()
			_ = c.server.Close()
		}
		p.mu.Unlock()
		p.work.Wait()
	})
	return p
}

// begin resets the late replies.
func (p *proxy) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = overdue{}
}

// end waits for all replies and returns the late ones.
func (p *proxy) end() overdue {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waitLocked()
	return p.late
}

// waitLocked waits for all replies.
func (p *proxy) waitLocked() {
	waits := func(c *passage) bool { return !c.asked.IsZero() }
	for slices.ContainsFunc(slices.Collect(maps.Keys(p.open)), waits) {
		p.idle.Wait()
	}
}

func (p *proxy) requests(c *passage) {
	defer p.close(c)
	b := make([]byte, 64<<10)
	for {
		n, sent, err := readStamped(c.client, b)
		if err != nil {
			if errors.Is(err, errUnstamped) {
				p.t.Error(err)
			}
			return
		}
		p.mu.Lock()
		if c.asked.IsZero() {
			c.asked = sent
		}
		hold := p.hold
		p.mu.Unlock()
		if hold != 0 {
			if err := p.stop(hold, c); err != nil {
				p.t.Error(err)
			}
		}
		if _, err := c.server.Write(b[:n]); err != nil {
			return
		}
	}
}

// stop stops a child process until the passage's reply has arrived.
func (p *proxy) stop(pid int, c *passage) error {
	p.stopping.Lock()
	defer p.stopping.Unlock()
	stands := len(p.stopped) > 0
	p.stopped[c] = true
	if stands {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	_, err := syscall.Wait4(pid, nil, syscall.WUNTRACED, nil)
	return err
}

// resume continues the process, unless it is stopped for other replies too.
func (p *proxy) resume(pid int, c *passage) error {
	p.stopping.Lock()
	defer p.stopping.Unlock()
	stood := p.stopped[c]
	delete(p.stopped, c)
	if !stood || len(p.stopped) > 0 {
		return nil
	}
	return syscall.Kill(pid, syscall.SIGCONT)
}

func (p *proxy) replies(c *passage) {
	defer p.close(c)
	b := make([]byte, 64<<10)
	for {
		n, err := c.server.Read(b)
		if err != nil {
			return
		}
		_, err = c.client.Write(b[:n])
		if hold := p.answered(c); hold != 0 {
			time.Sleep(2 * timeout) // so that the process finds its timeout passed and the reply arrived
			if err := p.resume(hold, c); err != nil {
				p.t.Error(err)
			}
		}
		if err != nil {
			return
		}
	}
}

// answered records that the reply has been written, or never will be. It returns the process that was stopped for it.
func (p *proxy) answered(c *passage) (held int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.asked.IsZero() {
		return 0 // a later part of the same reply
	}
	took := time.Since(c.asked)
	c.asked = time.Time{}
	if took > timeout {
		p.late.replies++
		p.late.most = max(p.late.most, took)
	}
	p.idle.Broadcast()
	return p.hold
}

// holdUp stops a process whenever it has sent a request, until its timeout has passed. With 0 no process is stopped.
func (p *proxy) holdUp(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waitLocked()
	p.hold = pid
}

func (p *proxy) close(c *passage) {
	_ = c.client.Close()
	_ = c.server.Close()
	if hold := p.answered(c); hold != 0 {
		_ = p.resume(hold, c)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// readStamped reads from a connection, and returns when the kernel received the last of the data: on the loopback
// interface that is when the other process wrote it.
func readStamped(conn net.Conn, b []byte) (n int, sent time.Time, err error) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, sent, err
	}
	var control [64]byte
	var controls int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, controls, _, _, failed = syscall.Recvmsg(int(fd), b, control[:], 0)
		return !errors.Is(failed, syscall.EAGAIN) && !errors.Is(failed, syscall.EINTR)
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, sent, err
	}
	if n == 0 {
		return 0, sent, io.EOF
	}
	messages, err := syscall.ParseSocketControlMessage(control[:controls])
	if err != nil {
		return 0, sent, err
	}
	for _, m := range messages {
		if m.Header.Type == syscall.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			at := binary.NativeEndian
			return n, time.Unix(int64(at.Uint64(m.Data)), int64(at.Uint64(m.Data[8:]))), nil
		}
	}
	return 0, sent, errUnstamped
}

// stamps returns an error if the kernel does not timestamp data that the listener receives.
func stamps(l net.Listener) error {
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := out.Write([]byte{0}); err != nil {
		return err
	}
	_, _, err = readStamped(in, make([]byte, 1))
	return err
}

var errUnstamped = errors.New("the kernel has not timestamped a request")
