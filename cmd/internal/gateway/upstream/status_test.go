package upstream_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawH2Origin starts an h2c server whose responses are written by respond.
func rawH2Origin(t testing.TB, respond func(f *http2.Framer, stream uint32)) string {
	t.Helper()
	return rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
		if _, err := io.ReadFull(in, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(conn, in)
		if f.WriteSettings() != nil {
			return
		}
		for {
			switch frame, err := f.ReadFrame(); frame := frame.(type) {
			case nil:
				if err != nil {
					return
				}
			case *http2.SettingsFrame:
				if !frame.IsAck() && f.WriteSettingsAck() != nil {
					return
				}
			case *http2.HeadersFrame:
				respond(f, frame.StreamID)
			}
		}
	})
}

// h2Head returns a header block with pairs of names and values.
func h2Head(pairs ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(pairs); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return b.Bytes()
}

// An invalid status, or a 101 that was not requested, is a 502, over both protocols on both sides. The server is still used, and
// so is the caller's connection.
func TestBadStatus(t *testing.T) {
	for _, status := range []string{"000", "010", "099", "+99", "-00", "-12", "-1", "1000", "65536", "99999999999", "0", "9", "", "abc", "2 0", "101"} {
		h1 := rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
			if _, err := headOf(in); err == nil {
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s What\r\nContent-Length: 2\r\n\r\nhi", status)
			}
		})
		h2 := rawH2Origin(t, func(f *http2.Framer, stream uint32) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: h2Head(":status", status), EndHeaders: true, EndStream: status != "101"})
			if status == "101" {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: h2Head(":status", "200"), EndHeaders: true, EndStream: true})
			}
		})
		for name, to := range ways {
			at := h1
			if name == "h2c" {
				at = h2
			}
			cfg := to(at)
			cfg.Retries = -1
			gw, g := gateway(t, cfg)
			for proto, c := range bothClients(t) {
				for _, method := range []string{"GET", "POST"} {
					got := do(t, c, request(t, method, gw.URL, ""))
					if got.status != 502 || got.header.Get("Content-Type") != "application/problem+json" || got.err != nil {
						t.Errorf("status %q over %s to a client of %s, %s: %d %q %v", status, name, proto, method, got.status, got.body, got.err)
					}
				}
			}
			if s := g.Status()[0]; s.InFlight != 0 || s.Failures != 4 {
				t.Errorf("status %q over %s: %+v", status, name, s)
			}
		}
	}
}

// The lowest and highest valid statuses are forwarded.
func TestGoodStatus(t *testing.T) {
	for _, status := range []int{200, 299, 599, 600, 999} {
		h1 := rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
			if _, err := headOf(in); err == nil {
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d What\r\nContent-Length: 2\r\n\r\nhi", status)
			}
		})
		for _, cfg := range []upstream.Config{ways["lane"](h1), ways["transport"](h1)} {
			gw, _ := gateway(t, cfg)
			for proto, c := range bothClients(t) {
				if got := do(t, c, request(t, "GET", gw.URL, "")); got.status != status || got.body != "hi" {
					t.Errorf("%d to a client of %s: %+v", status, proto, got)
				}
			}
		}
	}
}

// bothClients returns an HTTP/1 and an HTTP/2 client.
func bothClients(t testing.TB) map[string]*http.Client {
	t.Helper()
	two := &http.Transport{Protocols: new(http.Protocols)}
	two.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(two.CloseIdleConnections)
	return map[string]*http.Client{"HTTP/1": client(t), "HTTP/2": {Transport: two}}
}
