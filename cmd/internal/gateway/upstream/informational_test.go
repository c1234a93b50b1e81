package upstream_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
	"github.com/sluiceproject/sluice/internal/bounds"
)

// A server sends endless informational responses to a client that does not read. Other clients on the same server connection are
// served, and the number of waiting responses is bounded.
func TestInformationalUnread(t *testing.T) {
	const many = 5000 // more than connections hold
	sent, over := make(chan struct{}), make(chan struct{})
	at := rawFrames(t, nil, func(_ net.Conn, f *http2.Framer) {
		_ = f.WriteSettings()
		attacks.ReadRequests(f, func(h *http2.MetaHeadersFrame) bool {
			if h.PseudoValue("path") != "/hints" {
				respond(f, h.StreamID, "ok", ":status", "200")
				return true
			}
			block := attacks.HeaderBlock(":status", "103", "link", strings.Repeat("x", 3000))
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: block, EndHeaders: true})
			for range many { // the same header again, in its shortest encoding
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: []byte{0xbf, 0xbe}, EndHeaders: true})
			}
			close(sent)
			return true
		})
	})
	gw, g := gateway(t, upstream.Config{Servers: []string{at}, Retries: -1, Timeouts: upstream.Timeouts{Header: time.Hour, Idle: time.Hour}})
	reached := bounds.Interims.Count()
	conn, err := net.Dial("tcp", gw.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	_, _ = io.WriteString(conn, "GET /hints HTTP/1.1\r\nHost: x\r\n\r\n")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() { defer close(over); <-ctx.Done() }()
	select {
	case <-sent:
	case <-over:
		t.Error("the server cannot send on")
	}
	for range 5 {
		res, err := client(t).Do(request(t, "GET", gw.URL, "").WithContext(ctx))
		if err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				t.Fatal("a request of another client was not served")
			}
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 200 || !bytes.Equal(b, []byte("ok")) {
			t.Errorf("%d %q", res.StatusCode, b)
		}
	}
	if n := bounds.Interims.Count() - reached; n == 0 {
		t.Error("none was dropped")
	}
	conn.Close()
	awaitTrue(t, "the request is in flight", func() bool { return g.Status()[0].InFlight == 0 })
}

// Informational responses arrive in order and before the final response, even if that follows at once.
func TestInformationalOrder(t *testing.T) {
	at := rawFrames(t, nil, func(_ net.Conn, f *http2.Framer) {
		_ = f.WriteSettings()
		attacks.ReadRequests(f, func(h *http2.MetaHeadersFrame) bool {
			for _, n := range []string{"1", "2", "3"} {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: attacks.HeaderBlock(":status", "103", "x-n", n), EndHeaders: true})
			}
			respond(f, h.StreamID, "ok", ":status", "200")
			return true
		})
	})
	gw, _ := gateway(t, upstream.Config{Servers: []string{at}})
	for range 50 {
		conn, err := net.Dial("tcp", gw.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		b, _ := io.ReadAll(conn)
		conn.Close()
		text := string(b)
		last := -1
		for _, part := range []string{"X-N: 1\r", "X-N: 2\r", "X-N: 3\r", "HTTP/1.1 200 "} {
			i := strings.Index(text, part)
			if i <= last {
				t.Fatalf("%q", text)
			}
			last = i
		}
		if n := strings.Count(text, "HTTP/1.1 103 "+http.StatusText(103)); n != 3 {
			t.Fatalf("%d informational responses", n)
		}
	}
}
