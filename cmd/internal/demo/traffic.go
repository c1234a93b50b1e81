package demo

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// syntheticRequest is a request of a synthetic client.
type syntheticRequest struct {
	from         string // address
	method, path string
	user, device string
	password     string
}

// syntheticClient sends bursts of requests: calls requests at once, at random intervals with mean every.
type syntheticClient struct {
	every time.Duration
	calls int
	next  func() syntheticRequest // called once per burst
}

// syntheticClients returns the clients of the demo. Their addresses are reserved for documentation, and their users and devices do
// not occur in the printed commands, so that they use no quota of a user who tries the demo.
func syntheticClients() []syntheticClient {
	one := func(names ...string) string { return names[rand.N(len(names))] }
	user := func() string { return one("ada", "bob", "carol", "dan") }
	address := func() string { return fmt.Sprintf("198.51.100.%d", 1+rand.N(40)) } // reserved for documentation, RFC 5737
	number := func() int { return 1 + rand.N(20) }
	const attacker = "203.0.113.66"
	devices := 0
	return []syntheticClient{
		{700 * time.Millisecond, 1, func() syntheticRequest {
			return syntheticRequest{from: address(), method: "GET", path: fmt.Sprintf("/posts/%d", number()), user: user()}
		}},
		{3 * time.Second, 1, func() syntheticRequest {
			return syntheticRequest{from: address(), method: "POST", path: "/posts", user: user()}
		}},
		{5 * time.Second, 5, func() syntheticRequest {
			return syntheticRequest{from: attacker, method: "POST", path: "/posts", user: "mallory"}
		}},
		{3 * time.Second, 1, func() syntheticRequest { return syntheticRequest{from: address(), method: "GET", path: "/hello"} }},
		{5 * time.Second, 1, func() syntheticRequest { return syntheticRequest{from: address(), method: "POST", path: "/accounts"} }},
		{15 * time.Second, 4, func() syntheticRequest { return syntheticRequest{from: attacker, method: "POST", path: "/accounts"} }},
		{5 * time.Second, 1, func() syntheticRequest {
			return syntheticRequest{from: address(), method: "GET", path: "/login", user: user(), password: "sesame"}
		}},
		{20 * time.Second, 5, func() syntheticRequest {
			return syntheticRequest{from: attacker, method: "GET", path: "/login", user: user(), password: one("1234", "secret", "qwerty")}
		}},
		{2 * time.Minute, 7, func() syntheticRequest {
			devices++
			return syntheticRequest{from: address(), method: "POST", path: "/rewards", device: fmt.Sprintf("phone-%d", devices)}
		}},
		{45 * time.Second, 3, func() syntheticRequest {
			return syntheticRequest{from: address(), method: "POST", path: "/exports", user: user()}
		}},
		{8 * time.Second, 4, func() syntheticRequest {
			return syntheticRequest{from: address(), method: "GET", path: fmt.Sprintf("/thumbnails/%d.png", number()), user: user()}
		}},
		{15 * time.Second, 3, func() syntheticRequest {
			return syntheticRequest{from: address(), method: "GET", path: "/downloads/film", user: user()}
		}},
	}
}

// maxFirstWait is the maximum time until a client sends its first burst, so that sluice top soon shows all of them.
const maxFirstWait = 3 * time.Second

// run sends requests until ctx is done.
func (c *syntheticClient) run(ctx context.Context, send func(context.Context, *syntheticRequest)) {
	var running sync.WaitGroup
	defer running.Wait()
	for wait := rand.N(min(c.every, maxFirstWait)); pause(ctx, wait); wait = c.every/2 + rand.N(c.every) {
		next := c.next()
		for range c.calls {
			running.Go(func() { send(ctx, &next) })
		}
	}
}

// sendTraffic sends the requests of the synthetic clients to the gateway until ctx is done.
func sendTraffic(ctx context.Context, gateway http.Handler) {
	calls := pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: gateway, ReadHeaderTimeout: 5 * time.Second}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(&calls) })
	transport := &http.Transport{DialContext: calls.dial, DisableKeepAlives: true}

	var clients sync.WaitGroup
	for _, c := range syntheticClients() {
		clients.Go(func() { c.run(ctx, func(ctx context.Context, n *syntheticRequest) { n.send(ctx, transport) }) })
	}
	clients.Wait()
	_ = server.Close()
	running.Wait()
}

// send sends the request and discards the response, because the metrics of the service show the outcome.
func (c *syntheticRequest) send(ctx context.Context, over http.RoundTripper) {
	req, err := http.NewRequestWithContext(ctx, c.method, "http://"+c.from+c.path, nil)
	if err != nil {
		return
	}
	req.Header.Set("User-Agent", "sluice-demo")
	if c.user != "" {
		req.Header.Set("X-User", c.user)
	}
	if c.device != "" {
		req.Header.Set("X-Device-Id", c.device)
	}
	if c.password != "" {
		req.SetBasicAuth(c.user, c.password)
	}
	resp, err := over.RoundTrip(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

// pipes is a listener for in-process connections with arbitrary remote addresses: the remote address of an accepted connection is
// the address that was dialled.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial(ctx context.Context, _, from string) (net.Conn, error) {
	address, err := netip.ParseAddrPort(from)
	if err != nil {
		return nil, err
	}
	here, there := net.Pipe()
	select {
	case p.conns <- &pipe{there, net.TCPAddrFromAddrPort(address)}:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return pipeAddr{} }

// pipe is a connection with the given remote address.
type pipe struct {
	net.Conn
	from net.Addr
}

func (p *pipe) RemoteAddr() net.Addr { return p.from }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
