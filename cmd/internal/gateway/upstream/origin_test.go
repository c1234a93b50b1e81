package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// gateway starts a server that forwards to a group. It supports HTTP/1 and h2c.
func gateway(t testing.TB, cfg upstream.Config) (*httptest.Server, *upstream.Group) {
	t.Helper()
	return gatewayWith(t, cfg, func(h http.Handler) http.Handler { return h })
}

func gatewayWith(t testing.TB, cfg upstream.Config, wrap func(http.Handler) http.Handler) (*httptest.Server, *upstream.Group) {
	t.Helper()
	g, err := upstream.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(wrap(g))
	s.Config.Protocols = bothProtocols()
	s.Start()
	t.Cleanup(func() { s.Close(); g.Close() })
	return s, g
}

func bothProtocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// origin starts an upstream server that supports HTTP/1 and h2c.
func origin(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = bothProtocols()
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// ways are the transports to a server: tests of responses use each.
var ways = map[string]func(at string) upstream.Config{
	"lane":      func(at string) upstream.Config { return upstream.Config{Servers: []string{at}} },
	"transport": func(at string) upstream.Config { return upstream.Config{Servers: []string{at}}.WithoutPool() },
	"h2c": func(at string) upstream.Config {
		return upstream.Config{Servers: []string{strings.Replace(at, "http://", "h2c://", 1)}}
	},
}

func eachWay(t *testing.T, run func(t *testing.T, to func(at string) upstream.Config)) {
	t.Helper()
	for name, to := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, to)
		})
	}
}

// rawOrigin starts a server whose connections are served by a function.
func rawOrigin(t testing.TB, serve func(conn net.Conn, in *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				serve(conn, bufio.NewReader(conn))
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return "http://" + l.Addr().String()
}

// refusing returns an address that refuses connections.
func refusing(t testing.TB) string {
	t.Helper()
	return "http://" + tcptest.FreeAddress(t)
}

// client returns a client with separate connections.
func client(t testing.TB) *http.Client {
	t.Helper()
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

type answered struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func do(t testing.TB, c *http.Client, r *http.Request) answered {
	t.Helper()
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answered{res.StatusCode, res.Header, string(b), err}
}

func request(t testing.TB, method, url, body string) *http.Request {
	t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, from)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func get(t testing.TB, url string) answered {
	t.Helper()
	return do(t, client(t), request(t, "GET", url, ""))
}

// memory is an in-memory network, which works in synctest bubbles.
type memory struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
}

type memoryListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *memoryListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *memoryListener) Addr() net.Addr { return &net.TCPAddr{} }

var errRefused = errors.New("refused")

func (m *memory) dial(ctx context.Context, _, address string) (net.Conn, error) {
	m.mu.Lock()
	l := m.listeners[address]
	m.mu.Unlock()
	if l == nil {
		return nil, errRefused
	}
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return &memoryConn{Conn: ours}, nil
	case <-l.done:
		return nil, errRefused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// memoryConn records its deadlines.
type memoryConn struct {
	net.Conn
	mu          sync.Mutex
	read, write time.Time
}

func (c *memoryConn) set(t time.Time, deadlines ...*time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range deadlines {
		*d = t
	}
}

func (c *memoryConn) SetDeadline(t time.Time) error {
	c.set(t, &c.read, &c.write)
	return c.Conn.SetDeadline(t)
}

func (c *memoryConn) SetReadDeadline(t time.Time) error {
	c.set(t, &c.read)
	return c.Conn.SetReadDeadline(t)
}

func (c *memoryConn) SetWriteDeadline(t time.Time) error {
	c.set(t, &c.write)
	return c.Conn.SetWriteDeadline(t)
}

// Deadlines returns the last read and write deadlines.
func (c *memoryConn) Deadlines() [2]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return [2]time.Time{c.read, c.write}
}

func (m *memory) listen(address string) *memoryListener {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listeners == nil {
		m.listeners = map[string]*memoryListener{}
	}
	l := &memoryListener{conns: make(chan net.Conn), done: make(chan struct{})}
	m.listeners[address] = l
	return l
}

// serve runs a server at the address. The returned function stops it.
func (m *memory) serve(address string, h http.Handler) (end func()) {
	l := m.listen(address)
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	return func() { s.Close() }
}

// client returns a client for servers of this network.
func (m *memory) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: m.dial}}
}

// memoryAddr is an address of the network.
type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }

// listenAnywhere listens at an address that is not in use.
func (m *memory) listenAnywhere(t *testing.T) net.Listener {
	t.Helper()
	m.mu.Lock()
	at := memoryAddr("memory:" + strconv.Itoa(len(m.listeners)))
	m.mu.Unlock()
	return &addressed{m.listen(string(at)), at}
}

type addressed struct {
	*memoryListener
	at memoryAddr
}

func (a *addressed) Addr() net.Addr { return a.at }

func (m *memory) dialAddr(ctx context.Context, to net.Addr) (net.Conn, error) {
	return m.dial(ctx, "", to.String())
}
