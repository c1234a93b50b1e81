package upstream_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
)

// A server whose responses are truncated is ejected like one that does not respond, and one success resets the count.
func TestCutOff(t *testing.T) {
	var whole atomic.Bool
	http1 := func(conn net.Conn, in *bufio.Reader) {
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
			if !whole.Load() {
				return
			}
			_, _ = io.WriteString(conn, strings.Repeat("x", 100))
		}
	}
	overH2 := func(_ net.Conn, f *http2.Framer) {
		_ = f.WriteSettings()
		attacks.ReadRequests(f, func(h *http2.MetaHeadersFrame) bool {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: attacks.HeaderBlock(":status", "200", "content-length", "100"), EndHeaders: true})
			if !whole.Load() {
				_ = f.WriteRSTStream(h.StreamID, http2.ErrCodeInternal)
			} else {
				_ = f.WriteData(h.StreamID, true, []byte(strings.Repeat("x", 100)))
			}
			return true
		})
	}
	well := func() string {
		return origin(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 100)) })
	}
	for name, cfg := range map[string]upstream.Config{
		"lane":      {Servers: []string{rawOrigin(t, http1), well()}},
		"transport": upstream.Config{Servers: []string{rawOrigin(t, http1), well()}}.WithoutPool(),
		"h2c":       {Servers: []string{rawFrames(t, nil, overH2), well()}},
	} {
		cfg.OutlierDetection = upstream.OutlierDetection{ConsecutiveFailures: 3}
		gw, g := gateway(t, cfg)
		broken := func(rounds int) (n int) {
			for range 2 * rounds { // every second request goes to the other server
				res, err := client(t).Do(request(t, "GET", gw.URL, ""))
				if err == nil {
					_, err = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				if err != nil {
					n++
				}
			}
			return n
		}
		whole.Store(false)
		if n := broken(2); n != 2 {
			t.Errorf("%s: %d of 2 truncated", name, n)
		}
		whole.Store(true)
		if n := broken(1); n != 0 {
			t.Errorf("%s: a complete response was truncated", name)
		}
		for g.Status()[0].InFlight > 0 { // the success is recorded after the last byte was sent
			runtime.Gosched()
		}
		whole.Store(false)
		if n := broken(10); n != 3 {
			t.Errorf("%s: %d truncated before the server was ejected, want 3", name, n)
		}
		if st := g.Status()[0]; st.State != upstream.StateEjected || st.Ejections != 1 || st.Failures != 5 {
			t.Errorf("%s: %+v", name, st)
		}
	}
}

// A client that disconnects in the middle of a response, or does not send its complete request, is no failure of the server.
func TestCutOffByClients(t *testing.T) {
	eachWay(t, func(t *testing.T, to func(at string) upstream.Config) {
		at := origin(t, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				panic(http.ErrAbortHandler)
			}
			<-r.Context().Done()
		})
		cfg := to(at)
		cfg.OutlierDetection.ConsecutiveFailures = 1
		gw, g := gateway(t, cfg)
		for _, head := range []string{
			"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nbegun",
			"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\nno chunk\r\n",
		} {
			conn, err := net.Dial("tcp", gw.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, head)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				if _, err = io.ReadFull(res.Body, make([]byte, 5)); errors.Is(err, io.ErrUnexpectedEOF) {
					err = nil
				}
			}
			if err != nil && !strings.Contains(head, "no chunk") {
				t.Errorf("%q: %v", head, err)
			}
			conn.Close()
		}
		awaitTrue(t, "requests are in flight", func() bool { return g.Status()[0].InFlight == 0 })
		if st := g.Status()[0]; st.Failures != 0 || st.Ejections != 0 {
			t.Errorf("%+v", st)
		}
	})
}
