package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/net/websocket"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
)

// Floods of pings, huge frames and endless messages on WebSockets cost the gateway no memory, and other WebSockets still work.
func TestGatewayWebSocketFloods(t *testing.T) {
	t.Parallel()
	app := newPages(t)
	p, address := startGateway(t, fmt.Sprintf("{upstreams: {app: {servers: %q}}, routes: [{upstream: app}]}", app.URL), "rules: []", "")
	config, err := websocket.NewConfig("ws://"+address+"/socket/honest", "http://a")
	if err != nil {
		t.Fatal(err)
	}
	honest, err := config.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer honest.Close()
	before := (&victim{process: p.process}).resident(t)
	for _, a := range attacks.WebSocket() {
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			err := a.Run(ctx, attacks.Target{Address: address, Path: "/socket/x", Scale: scale()})
			cancel()
			if err != nil {
				t.Errorf("%s: %v", a.Name, err)
			}
			heard(t, honest, a.Name)
		}
	}
	const most = 200 // MiB, mostly used by the race detector
	if after := (&victim{process: p.process}).resident(t); after > before+most {
		t.Errorf("the memory of the process grew from %d MiB to %d", before, after)
	}
}

// Clients cannot raise their priority: only the match of a rule sets it, and the gateway removes headers that clients may not set.
func TestGatewayForgedPriorities(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			_ = http.NewResponseController(w).Flush()
			<-release
		}
	}))
	defer app.Close()
	_, address := startGateway(t, fmt.Sprintf("{upstreams: {app: {servers: %q}}, routes: [{upstream: app}]}", app.URL), `
attributes: {plan: {header: X-Plan}}
priorities:
  - {match: {path: /vital}, priority: critical}
  - {match: {plan: gold}, priority: critical}
load_shedding: [{name: all, concurrency: {min: 4, max: 4}}]
rules: []
`, "authentication: {identity_headers: {X-Plan: plan}}")
	ask := func(path, fields string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(fields, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				req.Header.Add(name, value)
			}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp.StatusCode
	}
	// Requests of priority normal are admitted while fewer than 75 % of max are in flight. These responses begin and do not end. On a
	// busy machine some are shed earlier because of CPU pressure.
	held := 0
	for try := 0; held < 3; try++ {
		if ask("/held", "") == http.StatusOK {
			held++
		} else if try > 5000 {
			t.Fatalf("with %d in flight, no other request is admitted", held)
		}
	}
	defer close(release)
	for _, forged := range []string{
		"X-Plan: gold", "x-plan: gold", "X-Plan: gold\nX-Plan: gold", "Connection: X-Plan\nX-Plan: gold", "X_Plan: gold", "X.Plan: gold", "Plan: gold",
		"Priority: u=0", "Priority: critical", "X-Priority: critical", "X-Sluice-Priority: critical", "Sluice-Attempt: 1", "Importance: high", "X-Forwarded-Uri: /vital", "X-Original-Url: /vital", "X-Rewrite-Url: /vital",
		"Cookie: plan=gold", "X-HTTP-Method-Override: PUT", "Authorization: Bearer gold",
	} {
		if status := ask("/held", forged); status != http.StatusServiceUnavailable {
			t.Errorf("%q: %d", forged, status)
		}
	}
	if status := ask("/vital", ""); status != http.StatusOK {
		t.Errorf("priority critical: status %d with %d in flight", status, held)
	}
	block := attacks.HeaderBlock(":method", "GET", ":scheme", "http", ":path", "/held", ":authority", "a", "priority", "u=0", "x-plan", "gold")
	status, err := overHTTP2(t.Context(), address, block)
	if err != nil || status != "503" {
		t.Errorf("over HTTP/2 with PRIORITY: %q, %v", status, err)
	}
}

// overHTTP2 sends a request with the highest weight of HTTP/2, and returns the status.
func overHTTP2(ctx context.Context, address string, block []byte) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := attacks.Target{Address: address}.Dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return "", err
	}
	_ = f.WriteSettings()
	_ = f.WritePriority(1, http2.PriorityParam{Exclusive: true, Weight: 255})
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true, EndStream: true, Priority: http2.PriorityParam{Exclusive: true, Weight: 255}})
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return "", err
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok {
			return h.PseudoValue("status"), nil
		}
	}
}
