package upstream_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/websocket"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

// A WebSocket is forwarded, counted, and closed at shutdown.
func TestWebSocket(t *testing.T) {
	at := origin(t, func(w http.ResponseWriter, r *http.Request) {
		websocket.Handler(func(ws *websocket.Conn) {
			for {
				var text string
				if websocket.Message.Receive(ws, &text) != nil || websocket.Message.Send(ws, text) != nil {
					return
				}
			}
		}).ServeHTTP(w, r)
	})
	gw, g := gateway(t, upstream.Config{Servers: []string{at}})
	url := strings.Replace(gw.URL, "http://", "ws://", 1)
	var open []*websocket.Conn
	for range 2 {
		ws, err := websocket.Dial(url, "", gw.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer ws.Close()
		open = append(open, ws)
		for _, text := range []string{"hello", strings.Repeat("x", 100_000)} {
			var got string
			if err := websocket.Message.Send(ws, text); err != nil {
				t.Fatal(err)
			}
			if err := websocket.Message.Receive(ws, &got); err != nil || got != text {
				t.Errorf("%d bytes: %d %v", len(text), len(got), err)
			}
		}
	}
	if s := g.Status()[0]; s.Upgraded != 2 || s.InFlight != 2 {
		t.Errorf("%+v", s)
	}
	g.Close() // after a configuration change it stays open
	if err := websocket.Message.Send(open[0], "still"); err != nil {
		t.Error(err)
	}
	var got string
	if err := websocket.Message.Receive(open[0], &got); err != nil || got != "still" {
		t.Errorf("%.50q %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for _, ws := range open {
		if err := websocket.Message.Receive(ws, &got); err == nil {
			t.Error("it is open after shutdown")
		}
	}
	if _, err := websocket.Dial(url, "", gw.URL); err == nil {
		t.Error("a new one after shutdown")
	}
	if err := g.Shutdown(t.Context()); err != nil { // none is open
		t.Error(err)
	}
}

// For a server that prefers HTTP/2, WebSockets use HTTP/1.1 and other requests HTTP/2.
func TestWebSocketTLS(t *testing.T) {
	a := certtest.New(t)
	pair := a.Issue(t, "inner.example.com")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(w, r.Proto)
			return
		}
		websocket.Handler(func(ws *websocket.Conn) { _, _ = io.Copy(ws, ws) }).ServeHTTP(w, r)
	}))
	s.EnableHTTP2, s.TLS = true, &tls.Config{Certificates: []tls.Certificate{cert}}
	s.StartTLS()
	t.Cleanup(s.Close)
	gw, g := gateway(t, upstream.Config{
		Servers: []string{s.URL}, TLS: upstream.TLS{CA: write(t, filepath.Join(t.TempDir(), "ca.pem"), a.PEM), ServerName: "inner.example.com"},
	})
	for range 3 {
		ws, err := websocket.Dial(strings.Replace(gw.URL, "http://", "ws://", 1)+"/ws", "", gw.URL)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if err := websocket.Message.Send(ws, "hello"); err != nil {
			t.Error(err)
		}
		if err := websocket.Message.Receive(ws, &got); err != nil || got != "hello" {
			t.Errorf("%q %v", got, err)
		}
		ws.Close()
		if got := get(t, gw.URL); got.status != 200 || got.body != "HTTP/2.0" {
			t.Errorf("%+v", got)
		}
	}
	// HTTP/1.0 supports neither upgrades nor 101.
	if got := say(t, gw.URL, "GET /ws HTTP/1.0\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", false); got != 200 {
		t.Errorf("HTTP/1.0: %d", got)
	}
	if st := g.Status()[0]; st.Failures != 0 {
		t.Errorf("%+v", st)
	}
}

// Any protocol is forwarded if both sides agree on it, and closing one direction does not close the other.
func TestUpgrade(t *testing.T) {
	at := rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
		head, _ := headOf(in)
		to := "echo"
		if strings.Contains(head[0], "/other") {
			to = "other"
		}
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Kept: 1\r\n\r\n", to)
		b, _ := io.ReadAll(in) // until the caller closes its side
		_, _ = conn.Write(b)
	})
	gw, _ := gatewayWith(t, upstream.Config{Servers: []string{at}}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Ours", "1")
			h.ServeHTTP(w, r)
		})
	})
	conn, err := net.Dial("tcp", gw.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nsent at once ")
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != 101 || res.Header.Get("Upgrade") != "echo" || res.Header.Get("X-Kept") != "1" || res.Header.Get("X-Ours") != "1" {
		t.Fatalf("%+v %v", res, err)
	}
	_, _ = io.WriteString(conn, "and later")
	_ = conn.(*net.TCPConn).CloseWrite()
	if b, err := io.ReadAll(in); err != nil || string(b) != "sent at once and later" {
		t.Errorf("%q %v", b, err)
	}

	r := request(t, "GET", gw.URL+"/other", "")
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	if got := do(t, client(t), r); got.status != 502 {
		t.Errorf("another protocol than requested: %+v", got)
	}
}

// An idle upgraded connection is closed after the timeout.
func TestUpgradeIdle(t *testing.T) {
	echo := func(w http.ResponseWriter, _ *http.Request) {
		conn, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, in)
	}
	cfg := upstream.Config{Servers: []string{"http://a:80"}, Timeouts: upstream.Timeouts{Upgrade: time.Minute}}
	inBubble(t, cfg, map[string]http.HandlerFunc{"a:80": echo}, func(t *testing.T, m *memory, g *upstream.Group) {
		conn, err := m.dial(t.Context(), "", "gw:80")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		in := bufio.NewReader(conn)
		if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != 101 {
			t.Fatalf("%+v %v", res, err)
		}
		for range 3 {
			<-time.After(50 * time.Second)
			_, _ = io.WriteString(conn, "x")
			if b, err := in.ReadByte(); b != 'x' || err != nil {
				t.Errorf("%q %v", b, err)
			}
		}
		begin := time.Now()
		if _, err := in.ReadByte(); err == nil || time.Since(begin) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		conn.Close()
		synctest.Wait()
		if s := g.Status()[0]; s.Upgraded != 0 || s.InFlight != 0 {
			t.Errorf("%+v", s)
		}
	})
}
