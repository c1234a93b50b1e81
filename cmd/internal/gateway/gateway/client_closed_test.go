package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
)

// A client that disconnects while its request is decided is no outage: the status is 499, whatever step was running.
func TestClientClosedIsNoOutage(t *testing.T) {
	for name, text := range map[string]string{
		"limit": "rules: [{name: all, limit: 5/h}]",
		"delay": "rules: [{name: all, limit: {rate: 1/h, burst: 5}, on_limit: delay, max_delay: 1h}]",
		"queue": "rules: [{name: all, limit: 1/h, on_limit: queue}]",
	} {
		t.Run(name, func(t *testing.T) {
			status := 0
			cfg := gateway.Config{Routes: []gateway.Route{{Path: pattern(t, "/**"), Upstream: echo}}}
			cfg.Rules, cfg.Limiter = limits(t, text)
			cfg.Queue = newQueue(t, func(*queue.Config) {})
			cfg.OnDone = func(x *gateway.RequestContext) { status = x.Status() }
			g, err := gateway.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			g.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			if status != http.StatusOK {
				t.Errorf("first request: status %d", status)
			}
			ctx, leave := context.WithCancel(t.Context())
			leave()
			func() {
				defer func() {
					if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // a panic's value
						t.Errorf("response with status %d: %v", status, p)
					}
				}()
				g.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil))
			}()
			if status != 499 {
				t.Errorf("status %d for a disconnected client, want 499", status)
			}
		})
	}
}

// HTTP/2 requests that are cancelled at once: each has a response or the status 499.
func TestCancelledStreams(t *testing.T) {
	const count = 100
	ended := make(chan int, count)
	address := before(t, echo, func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, "rules: [{name: all, limit: 100000/h}]")
		c.OnDone = func(x *gateway.RequestContext) { ended <- x.Status() }
	})
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&out, conn)
	_ = f.WriteSettings()
	var head bytes.Buffer
	for i := range uint32(count) {
		head.Reset()
		enc := hpack.NewEncoder(&head)
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1], Sensitive: true})
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true})
		_ = f.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	left := 0
	for range count {
		switch status := <-ended; status {
		case 499:
			left++
		case 200:
		default:
			t.Fatalf("status %d for a cancelled request", status)
		}
	}
	t.Logf("%d of %d clients disconnected before the response", left, count)
}

// Every request is logged with its client, even if it is rejected by the first check.
func TestRejectedHaveClients(t *testing.T) {
	ended := make(chan netip.Addr, 1)
	address := before(t, echo, func(c *gateway.Config) {
		c.OnDone = func(x *gateway.RequestContext) { ended <- x.Client }
	})
	for _, line := range []string{
		"GET /a%2fb", "TRACE /", "CONNECT a:1", "get /", "GET /" + strings.Repeat("a", 9<<10), "GET " + strings.Repeat("/a", 300),
		"GET /?" + strings.Repeat("a=b&", 1001), "GET /a;b", "GET /",
	} {
		raw(t, address, line+" HTTP/1.1\r\nHost: a:1\r\nConnection: close\r\n\r\n")
		if client := <-ended; client != netip.MustParseAddr("127.0.0.1") {
			t.Errorf("%.20s: client %v", line, client)
		}
	}
}

// A response that does not need the request's body does not wait for it. The connection stays usable if the body arrives.
func TestResponseBeforeBody(t *testing.T) {
	address := before(t, echo, func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, "deny: [{path: /denied}]\nrules: [{name: all, match: {path: /limited}, limit: {rate: 1/h, burst: 1}, cost: 2}]")
		c.Routes[0].MaxBody, c.Routes[0].Host = 100_000, "a"
	})
	for _, c := range []struct {
		host, path     string
		length, status int
	}{{"b", "/", 70_000, 404}, {"a", "/denied", 70_000, 403}, {"a", "/limited", 10, 429}, {"a", "/", 200_000, 413}, {"a", "/", 10_000_000, 413}} {
		began := time.Now()
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", c.path, c.host, c.length)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if took := time.Since(began); err != nil || resp.StatusCode != c.status || took > lastPiece/2 || !resp.Close {
			t.Errorf("%+v: %+v, %v after %v", c, resp, err, took)
		}
		conn.Close()
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for range 3 {
		_, _ = io.WriteString(conn, "POST /limited HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n"+strings.Repeat("x", 70_000))
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != 429 || resp.Close {
			t.Errorf("%s, closed: %v", resp.Status, resp.Close)
		}
	}
}

// lastPiece is the time that the server waits for the rest of a body.
const lastPiece = 10 * time.Second
