// Package faultproxy stands between a test and a real server and disturbs what passes.
//
//	proxy := faultproxy.Start(t, server.Addr)
//	proxy.Set(faultproxy.Fault{Silent: true})
//	proxy.Heal()
//
// A fault takes effect at once, on the connections that there are as well as on new ones. Requests are what clients
// send, replies what the server does.
//
// It is our own, and not one of the well-known proxies, because those bring a metrics library and a web framework along
// and cannot repeat a reply or keep it back, which is how clients are found that give one caller another's answer.
package faultproxy

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// Fault is what is wrong. The zero Fault is nothing.
type Fault struct {
	Refuse bool // nobody listens, and connections are closed
	Silent bool // connections are accepted and nothing passes; it does when that is over, as on a network that lost packets
	Mute   bool // requests pass and replies do not: a connection that the other end still believes in
	Dead   bool // the connections of now never pass anything again, but new ones do

	Delay  time.Duration // of each reply
	Jitter time.Duration // up to so much more, drawn for each reply; the order stays
	Rate   int           // bytes of replies a second on each connection; 0: any
	Slice  bool          // replies come one byte at a time
	Cut    int64         // connections are reset after so many bytes of replies, counted from the fault on; 0: never

	// Change rewrites what comes from the server, as it comes. It may repeat, keep back or drop some of it.
	Change func(c *Conn, b []byte) []byte
}

// Proxy passes on what comes to Addr.
type Proxy struct {
	Addr string

	t    testing.TB
	to   string
	work sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	listener net.Listener
	fault    Fault
	changed  chan struct{} // closed when the fault changes
	conns    map[*Conn]bool
	closed   bool

	requests, replies, accepted atomic.Int64
}

// Conn is a connection that passes through.
type Conn struct {
	Kept []byte // for Fault.Change to keep something back in

	client, server net.Conn
	dead           atomic.Bool
	since          atomic.Int64 // bytes of replies since the fault
	once           sync.Once
	gone           chan struct{}
}

// Start returns a proxy to a server's address, which ends with the test.
func Start(t testing.TB, to string) *Proxy {
	t.Helper()
	p := &Proxy{Addr: tcptest.FreeAddress(t), t: t, to: to, changed: make(chan struct{}), conns: map[*Conn]bool{}}
	if err := p.listen(p.Addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

// Requests is how many bytes of requests have passed.
func (p *Proxy) Requests() int64 { return p.requests.Load() }

// Replies is how many bytes of replies have passed.
func (p *Proxy) Replies() int64 { return p.replies.Load() }

// Accepted is how many connections were made.
func (p *Proxy) Accepted() int64 { return p.accepted.Load() }

// Heal ends the fault.
func (p *Proxy) Heal() { p.Set(Fault{}) }

// Set begins a fault in place of the one before.
func (p *Proxy) Set(f Fault) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	again := p.fault.Refuse && !f.Refuse
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
	for c := range p.conns {
		c.since.Store(0)
		if f.Dead {
			c.dead.Store(true)
		}
		if f.Refuse {
			c.reset()
		}
	}
	if f.Refuse {
		_ = p.listener.Close()
	}
	if again && !p.closed {
		if err := p.listen(p.Addr); err != nil {
			p.t.Errorf("faultproxy: listening again: %v", err)
		}
	}
}

func (p *Proxy) listen(addr string) error {
	l, err := tcptest.Listen(addr)
	if err != nil {
		return err
	}
	p.listener = l
	p.work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.accepted.Add(1)
			p.work.Go(func() { p.serve(client) })
		}
	})
	return nil
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	_ = p.listener.Close()
	for c := range p.conns {
		c.reset()
	}
	p.mu.Unlock()
	p.work.Wait()
}

// state is the fault of now, and what is closed when there is another.
func (p *Proxy) state() (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.changed
}

func (p *Proxy) serve(client net.Conn) {
	c := &Conn{client: client, gone: make(chan struct{})}
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		c.server = client
		c.reset()
		return
	}
	c.server = server
	p.mu.Lock()
	if p.closed || p.fault.Refuse {
		c.reset()
	}
	p.conns[c] = true
	p.mu.Unlock()
	p.work.Go(func() {
		defer c.reset()
		p.passRequests(c)
	})
	p.passReplies(c)
	c.reset()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// reset ends a connection so that both ends see an error rather than an end.
func (c *Conn) reset() {
	c.once.Do(func() {
		close(c.gone)
		for _, conn := range []net.Conn{c.client, c.server} {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = conn.Close()
		}
	})
}

// pass waits until the connection carries something, and returns the fault of then. It is false when it has ended.
func (p *Proxy) pass(c *Conn, stops func(*Fault) bool) (Fault, bool) {
	for {
		f, changed := p.state()
		if !c.dead.Load() && !stops(&f) {
			return f, true
		}
		select {
		case <-changed:
		case <-c.gone:
			return f, false
		}
	}
}

func (p *Proxy) passRequests(c *Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := c.client.Read(b)
		if err != nil {
			return
		}
		if _, ok := p.pass(c, func(f *Fault) bool { return f.Silent }); !ok {
			return
		}
		p.requests.Add(int64(n))
		if _, err := c.server.Write(b[:n]); err != nil {
			return
		}
	}
}

// chunk is a part of a reply on its way.
type chunk struct {
	b   []byte
	due time.Time
}

// passReplies reads in one goroutine and writes in another, so that what is delayed does not delay what follows.
func (p *Proxy) passReplies(c *Conn) {
	way := make(chan chunk, 1024)
	p.work.Go(func() {
		defer close(way)
		for {
			b := make([]byte, 16<<10)
			n, err := c.server.Read(b)
			if err != nil {
				return
			}
			f, _ := p.state()
			b = b[:n]
			if f.Change != nil {
				b = f.Change(c, b)
			}
			due := time.Now().Add(f.Delay)
			if f.Jitter > 0 {
				due = due.Add(rand.N(f.Jitter))
			}
			select {
			case way <- chunk{b, due}:
			case <-c.gone:
				return
			}
		}
	})
	for k := range way {
		if !c.wait(time.Until(k.due)) || !p.deliver(c, k.b) {
			c.reset()
			break
		}
	}
	for range way { // let the reader end
	}
}

// deliver writes a part of a reply as the fault of now has it.
func (p *Proxy) deliver(c *Conn, b []byte) bool {
	for len(b) > 0 {
		f, ok := p.pass(c, func(f *Fault) bool { return f.Silent || f.Mute })
		if !ok {
			return false
		}
		n := len(b)
		if f.Slice {
			n = 1
		}
		if f.Rate > 0 {
			n = min(n, max(1, f.Rate/100))
			if !c.wait(time.Duration(n) * time.Second / time.Duration(f.Rate)) {
				return false
			}
		}
		if f.Cut > 0 {
			if n = int(min(int64(n), f.Cut-c.since.Load())); n <= 0 {
				return false
			}
		}
		if _, err := c.client.Write(b[:n]); err != nil {
			return false
		}
		c.since.Add(int64(n))
		p.replies.Add(int64(n))
		b = b[n:]
	}
	return true
}

// wait is false when the connection ends meanwhile.
func (c *Conn) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.gone:
		return false
	}
}
