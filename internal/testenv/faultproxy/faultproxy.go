// Package faultproxy is a proxy between a test and a real server that injects faults.
//
//	proxy := faultproxy.Start(t, server.Addr)
//	proxy.Set(faultproxy.Fault{Silent: true})
//	proxy.Heal()
//
// A fault takes effect at once, on existing and on new connections. Requests are the data that clients send, replies
// the data that the server sends.
//
// The well-known proxies are not used, because they depend on a metrics library and a web framework and cannot repeat
// or withhold a reply. That is needed to find clients that return one caller the reply of another.
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

// Fault is a fault to inject. The zero Fault is none.
type Fault struct {
	Refuse bool // no listener, and connections are closed
	Silent bool // connections are accepted and no data passes until the fault ends, as on a network that loses packets
	Mute   bool // requests pass and replies do not, as on a half-open connection
	Dead   bool // existing connections never pass data again, new ones do

	Delay  time.Duration // of each reply
	Jitter time.Duration // additional random delay of each reply, up to this much; the order is kept
	Rate   int           // maximum bytes of replies per second on each connection; 0: unlimited
	Slice  bool          // replies arrive one byte at a time
	Cut    int64         // connections are reset after this many bytes of replies since the fault was set; 0: never

	// Change rewrites data from the server. It may repeat, withhold or drop some of it.
	Change func(c *Conn, b []byte) []byte
}

// Proxy forwards connections from Addr to a server.
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

// Conn is a forwarded connection.
type Conn struct {
	Kept []byte // data that Fault.Change withholds

	client, server net.Conn
	dead           atomic.Bool
	since          atomic.Int64 // bytes of replies since the fault was set
	once           sync.Once
	gone           chan struct{}
}

// Start returns a proxy for a server's address, which is closed at the end of the test.
func Start(t testing.TB, to string) *Proxy {
	t.Helper()
	p := &Proxy{Addr: tcptest.FreeAddress(t), t: t, to: to, changed: make(chan struct{}), conns: map[*Conn]bool{}}
	if err := p.listen(p.Addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

// Requests returns how many bytes of requests have passed.
func (p *Proxy) Requests() int64 { return p.requests.Load() }

// Replies returns how many bytes of replies have passed.
func (p *Proxy) Replies() int64 { return p.replies.Load() }

// Accepted returns how many connections were accepted.
func (p *Proxy) Accepted() int64 { return p.accepted.Load() }

// Heal ends the fault.
func (p *Proxy) Heal() { p.Set(Fault{}) }

// Set replaces the fault.
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

// state returns the current fault, and a channel that is closed when it changes.
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

// reset closes a connection so that both ends see an error instead of an end of file.
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

// pass waits until the connection may carry data, and returns the fault at that time. It returns false when the
// connection has ended.
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

// chunk is a part of a reply in transit.
type chunk struct {
	b   []byte
	due time.Time
}

// passReplies reads in one goroutine and writes in another, so that a delayed reply does not delay the following ones
// further.
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
	for range way { // so that the reader ends
	}
}

// deliver writes a part of a reply subject to the current fault. It reports whether the connection is still open.
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

// wait waits for d and reports whether the connection is still open.
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
