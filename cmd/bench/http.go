package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
)

// The HTTP scenario measures the middleware's share of a request. The handler is timed alone, with a response writer
// that does nothing, and the CPU time per request is measured on a real server on loopback, whose clients are another
// process.

type wrapper func(spec) (func(http.Handler) http.Handler, error)

var httpContenders = []contender{
	{
		name: "http-bare", role: roleFloor, about: "net/http, a handler that responds ok", clock: "none",
		scenarios: []string{httpServe},
		wrap: func(spec) (func(http.Handler) http.Handler, error) {
			return func(h http.Handler) http.Handler { return h }, nil
		},
	},
	{
		name: "http-sluice", role: roleOurs, about: "the same behind httplimit.Middleware by IP, default headers", clock: oursClock,
		scenarios: []string{httpServe}, wrap: wrapOurs,
	},
	{
		name: "http-httprate", role: rolePeer, about: "the same behind go-chi/httprate v0.16.1 by IP", clock: "time.Now, twice",
		scenarios: []string{httpServe}, wrap: wrapHTTPRate,
	},
}

func wrapOurs(s spec) (func(http.Handler) http.Handler, error) {
	l, err := sluice.New(memstore.New(), "bench", bucketLimit(s))
	if err != nil {
		return nil, err
	}
	return httplimit.Middleware(l, httplimit.ByIP()), nil
}

func wrapHTTPRate(s spec) (func(http.Handler) http.Handler, error) {
	return httprate.LimitBy(int(s.burst), longWindow, remoteIP), nil
}

// remoteIP is the key function that httprate's documentation recommends instead of its deprecated KeyByIP.
func remoteIP(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return httprate.CanonicalizeIP(host), err
}

// httpCost is the cost of a request.
type httpCost struct {
	HandlerNs float64 // of the handler alone
	Allocs    float64
	ServerNs  float64 // CPU time of the whole server per request over loopback
}

var okBody = []byte("ok\n")

// okHandler does as little as a handler can.
func okHandler(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(okBody)
}

// sink is a response writer that only stores the status.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

func measureHTTP(c *contender, s *scenario) (*result, error) {
	burst := int64(2*s.ops + 10*httpWarmup)
	wrap, err := c.wrap(spec{burst: burst, every: time.Minute})
	if err != nil {
		return nil, err
	}
	h := wrap(http.HandlerFunc(okHandler))
	cost := new(httpCost)
	if err := timeHandler(h, s.ops, cost); err != nil {
		return nil, err
	}
	if cost.ServerNs, err = timeServer(h, s.ops/10); err != nil {
		return nil, err
	}
	return &result{HTTP: cost}, c.denies()
}

// denies checks that the contender, if it is a middleware, responds 429 when a small limit is exhausted.
func (c *contender) denies() error {
	if c.role == roleFloor {
		return nil
	}
	wrap, err := c.wrap(spec{burst: 3, every: time.Minute})
	if err != nil {
		return err
	}
	h := wrap(http.HandlerFunc(okHandler))
	for i := range 5 {
		w, want := &sink{header: http.Header{}}, 0
		if i >= 3 {
			want = http.StatusTooManyRequests
		}
		if h.ServeHTTP(w, httpRequest()); w.status != want {
			return failf("request %d with a limit of 3: status %d, want %d", i+1, w.status, want)
		}
	}
	return nil
}

func httpRequest() *http.Request {
	r, err := http.NewRequest(http.MethodGet, "http://example.com/", nil)
	if err != nil {
		panic(err)
	}
	r.RemoteAddr = "192.0.2.1:1234"
	return r
}

const httpWarmup = 2000

func timeHandler(h http.Handler, n int, cost *httpCost) error {
	r, w := httpRequest(), new(sink)
	serve := func(n int) {
		for range n {
			w.header = make(http.Header) // as the server does for each response
			h.ServeHTTP(w, r)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	serve(httpWarmup)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	serve(n)
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)
	cost.HandlerNs = float64(elapsed.Nanoseconds()) / float64(n)
	cost.Allocs = float64(after.Mallocs-before.Mallocs) / float64(n)
	if w.status != 0 {
		return failf("unexpected status %d", w.status)
	}
	return nil
}

// timeServer serves n requests over loopback and returns this process's CPU time per request.
func timeServer(h http.Handler, n int) (float64, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	server := &http.Server{Handler: h}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(listener) }) // it returns when the server is closed
	defer done.Wait()
	defer server.Close()
	addr := listener.Addr().String()
	if err := callClient(addr, httpWarmup); err != nil {
		return 0, err
	}
	before := selfTime()
	if err := callClient(addr, n); err != nil {
		return 0, err
	}
	return float64(selfTime()-before) / float64(n), nil
}

// callClient sends n requests from a separate process, so that the client's CPU time is not counted as the server's.
func callClient(addr string, n int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(job{Server: addr, Requests: n})
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-child", string(text))
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// httpConnections is the number of clients, each with one request in flight.
const httpConnections = 16

func runClient(addr string, n int) error {
	faults := make(chan error, httpConnections)
	for i := range httpConnections {
		go func() { faults <- sendRequests(addr, n*(i+1)/httpConnections-n*i/httpConnections) }()
	}
	for range httpConnections {
		if err := <-faults; err != nil {
			return err
		}
	}
	return nil
}

func sendRequests(addr string, n int) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for range n {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"); err != nil {
			return err
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("unexpected status %d", res.StatusCode)
		}
	}
	return nil
}
