package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// metric returns the value of a metric of the service, or 0 if it does not exist.
func metric(t *testing.T, p *process, name string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + p.http + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindSubmatch(b)
	if m == nil {
		return 0
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// One address floods the gateway: more connections than allowed, incomplete bodies for the queue, and endless responses with an
// actual cost in their body. The heap stays below the sum of docs/bounds.md for one address, metrics and log name the reached
// bounds, and another address is served normally.
func TestGatewayFloodMemory(t *testing.T) {
	const (
		share, flood = 60, 200   // connections
		buffered     = 16 << 20  // bytes of bodies, of which one address may use 25 %
		perRequest   = 320 << 10 // a connection and its request, from docs/bounds.md
		piece        = 900 << 10 // bytes sent of each body
	)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/usage" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{"+strings.Repeat(" ", piece))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(api.Close) // after the gateway, which has open requests to it
	p, address := startGatewayOn(t, fmt.Sprintf("{address: '127.0.0.1:0', max_connections: 240, max_connections_per_address: %d}", share),
		fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: /**, upstream: api}], max_buffered_size: 16MiB}", api.URL), `
rules:
  - {name: later, match: {path: /later}, limit: 1/h, on_limit: queue}
  - {name: usage, match: {path: /usage}, limit: 1000000/h, actual_cost: {json: usage.total}}
`, fmt.Sprintf("queue: {directory: %q}\nmetrics: {http_listener: true}", t.TempDir()))
	from := func(client string) net.Conn {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}).Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		return c
	}
	ask := func(method, path, body string) string {
		c := from("127.0.0.2")
		fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
		b, _ := io.ReadAll(c)
		status, _, _ := strings.Cut(strings.TrimPrefix(string(b), "HTTP/1.1 "), " ")
		return status
	}
	if got := ask("POST", "/later", "x"); got != "200" {
		t.Fatalf("the first response: %s", got)
	}
	before := metric(t, p.process, "go_memstats_heap_alloc_bytes")
	reached := func(bound string) float64 {
		return metric(t, p.process, fmt.Sprintf("sluice_bound_reached_total{bound=%q}", bound))
	}
	body := strings.Repeat("x", piece)
	for i := range flood {
		c := from("127.0.0.1")
		go func() {
			if i%2 == 0 {
				fmt.Fprintf(c, "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", piece+1, body)
			} else {
				_, _ = io.WriteString(c, "GET /usage HTTP/1.1\r\nHost: a\r\n\r\n")
				_, _ = io.Copy(io.Discard, c)
			}
		}()
	}
	for until := time.Now().Add(20 * time.Second); reached("connections_per_address") == 0 || reached("buffered_bytes_per_address") == 0; {
		if <-time.After(20 * time.Millisecond); time.Now().After(until) {
			t.Fatalf("the bounds were reached %v and %v times", reached("connections_per_address"), reached("buffered_bytes_per_address"))
		}
	}
	const sum = share*perRequest + buffered/4
	// Without a garbage collection the heap may be twice as large.
	if now := metric(t, p.process, "go_memstats_heap_alloc_bytes"); now > 2*(before+sum) {
		t.Errorf("the heap grew from %.0f to %.0f bytes, want at most %.0f", before, now, 2*(before+sum))
	} else {
		t.Logf("the heap grew from %.0f to %.0f bytes; the documented sum is %d", before, now, sum)
	}
	for range 5 {
		if got := ask("GET", "/", ""); got != "200" {
			t.Errorf("another address: %s", got)
		}
		if got := ask("POST", "/later", "y"); got != "202" {
			t.Errorf("another address, queued: %s", got)
		}
	}
	p.await(t, "bound=connections_per_address")
}
