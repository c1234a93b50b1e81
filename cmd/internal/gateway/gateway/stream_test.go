package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
)

// Bodies that are too large are rejected: at once if the Content-Length is too large, and otherwise when they exceed the
// maximum. Other bodies are forwarded completely.
func TestBodySize(t *testing.T) {
	var asked atomic.Int64
	address := before(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d %v", n, err)
	}), func(c *gateway.Config) {
		c.Routes[0].MaxBody = 1000
		c.Routes = append(c.Routes, gateway.Route{Path: pattern(t, "/any"), Upstream: c.Routes[0].Upstream})
	})
	post := func(path, body string, chunked bool) answer {
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n", path)
		if chunked {
			return raw(t, address, fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, len(body), body))
		}
		return raw(t, address, fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body), body))
	}
	small, large := strings.Repeat("x", 1000), strings.Repeat("x", 1001)
	for _, chunked := range []bool{false, true} {
		if a := post("/", small, chunked); a.status != 200 || a.body != "1000 <nil>" {
			t.Errorf("chunked is %v: %+v", chunked, a)
		}
		if a := post("/any", large, chunked); a.status != 200 || a.body != "1001 <nil>" {
			t.Errorf("without a bound: chunked is %v: %+v", chunked, a)
		}
	}
	before := asked.Load()
	post("/", large, false).isProblem(t, http.StatusRequestEntityTooLarge)
	if asked.Load() != before {
		t.Error("the request reached the upstream")
	}
	if a := post("/", large, true); a.status != http.StatusRequestEntityTooLarge || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%+v", a)
	}
}

// Responses are streamed without delay over HTTP/1 and HTTP/2.
func TestStreams(t *testing.T) {
	next := make(chan string)
	address := before(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-End")
		w.Header().Set("Content-Type", "text/event-stream")
		for text := range next {
			_, _ = io.WriteString(w, text+"\n")
			_ = http.NewResponseController(w).Flush()
			if text == "end" {
				break
			}
		}
		w.Header().Set("X-End", "yes")
	}), nil)
	for name, client := range map[string]*http.Client{"HTTP/1.1": {Transport: &http.Transport{}}, "HTTP/2.0": overHTTP2()} {
		t.Run(name, func(t *testing.T) {
			go func() { next <- "one" }()
			resp, err := client.Get("http://" + address + "/")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			for _, text := range []string{"one", "two", "end"} {
				if !lines.Scan() || lines.Text() != text {
					t.Fatalf("got %q, want %q", lines.Text(), text)
				}
				if text != "end" {
					next <- map[string]string{"one": "two", "two": "end"}[text] // only now
				}
			}
			if lines.Scan() || resp.Proto != name || resp.Trailer.Get("X-End") != "yes" {
				t.Errorf("%s ends with %q and %v", resp.Proto, lines.Text(), resp.Trailer)
			}
		})
	}
}

// overHTTP2 returns a client for HTTP/2 without TLS.
func overHTTP2() *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: p}}
}

// The headers of HTTP/2 requests are cleaned and the requests limited like others.
func TestHTTP2(t *testing.T) {
	address := before(t, headers, func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, "rules: [{name: posts, match: {path: /posts}, limit: 1/h}]")
	})
	client := overHTTP2()
	send := func(target string, set func(*http.Request)) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Opaque = target
		if set != nil {
			set(req)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	status, got := send("/x/../posts", func(r *http.Request) {
		r.Header["x_forwarded_for"], r.Header["X-Real-Ip"] = []string{"1"}, []string{"1"}
	})
	if status != 200 || strings.Contains(strings.ToLower(got), "x_for") || strings.Contains(got, "X-Real-Ip") || !strings.Contains(got, `"X-Forwarded-For":["127.0.0.1"]`) {
		t.Errorf("%d %s", status, got)
	}
	for target, want := range map[string]int{"/posts": 429, "/./posts/": 429, "/%70osts": 429, "/x%2fposts": 400, "/posts;": 400} {
		if status, got := send(target, nil); status != want {
			t.Errorf("%s: %d %s", target, status, got)
		}
	}
}

// A WebSocket is forwarded in both directions. Other upgrades are not.
func TestWebSocket(t *testing.T) {
	address := before(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(w, "no upgrade")
			return
		}
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		for {
			line, err := buf.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "you said "+line)
		}
	}), func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, "rules: [{name: sockets, limit: 1/h}]")
	})
	ask := func(upgrade string) (net.Conn, *bufio.Reader, *http.Response) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_, _ = fmt.Fprintf(conn, "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: %s\r\n\r\n", upgrade)
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		return conn, r, resp
	}
	conn, r, resp := ask("websocket")
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "websocket" || resp.Header.Get("X-Ratelimit-Remaining") != "0" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	for _, text := range []string{"hello\n", "again\n"} {
		_, _ = io.WriteString(conn, text)
		if got, err := r.ReadString('\n'); got != "you said "+text || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if _, _, resp := ask("websocket"); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("another: %d", resp.StatusCode)
	}
	conn.Close() // or the gateway does not end
}

// Upgrades to other protocols than WebSocket would bypass all limits.
func TestNoOtherUpgrade(t *testing.T) {
	address := before(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%v %v %v", r.Header["Upgrade"], r.Header["Connection"], r.Header["Http2-Settings"])
	}), nil)
	for _, lines := range [][]string{
		{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"},
		{"Connection: Upgrade", "Upgrade: TLS/1.0"},
		{"Connection: Upgrade", "Upgrade: websocket, h2c"},
		{"Connection: Upgrade", "Upgrade: websocket", "Upgrade: h2c"},
		{"Upgrade: websocket"},
		{"Connection: Upgrade", "Upgrade: websocket", "Content-Length: 5", "", "hello"},
	} {
		if a := get(t, address, "/", lines...); a.status != 200 || a.body != "[] [] []" {
			t.Errorf("%q: %+v", lines, a)
		}
	}
}

// An unavailable upstream is a 502 without internal details.
func TestAway(t *testing.T) {
	away := httptest.NewServer(nil)
	away.Close()
	a := get(t, start(t, gateway.Config{Routes: []gateway.Route{{Path: pattern(t, "/**"), Upstream: group(t, away.URL)}}}), "/")
	if a.status != http.StatusBadGateway || a.header.Get("Content-Type") != "application/problem+json" || strings.Contains(a.body, "127.0.0.1") {
		t.Errorf("%+v", a)
	}
}

// A body exceeds the maximum while the response starts: only the handler's goroutine writes to the response, whatever goroutine
// reads the body.
func TestBodySizeEarlyResponse(t *testing.T) {
	address := before(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.ReadFull(r.Body, make([]byte, 900))
		w.Header().Set("X-Early", "yes")
		_, _ = io.WriteString(w, "early")
	}), func(c *gateway.Config) { c.Routes[0].MaxBody = 1000 })
	for range 100 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n384\r\n%s\r\n", strings.Repeat("x", 900))
		_, _ = fmt.Fprintf(conn, "384\r\n%s\r\n", strings.Repeat("x", 900))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
		conn.Close()
	}
}
