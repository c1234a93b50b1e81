package upstream_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
)

// A connection on which requests time out, because the server has stopped at any point, is not used again: the next request is
// served on a new one.
func TestHTTP2Frozen(t *testing.T) {
	const soon = 2 * time.Second
	header := upstream.Timeouts{Header: soon, Connect: 30 * time.Second}
	frame := func(write func(f *http2.Framer, id uint32)) func(net.Conn, uint32) {
		return func(conn net.Conn, id uint32) { // all except its end
			var b bytes.Buffer
			write(http2.NewFramer(&b, nil), id)
			_, _ = conn.Write(b.Bytes()[:b.Len()-1])
		}
	}
	for name, c := range map[string]struct {
		body     int
		warm     bool // the connection has served a request before, so that no other frames are pending
		timeouts upstream.Timeouts
		freeze   func(conn net.Conn, id uint32)
	}{
		"silent":       {timeouts: header},
		"small body":   {timeouts: header, body: 10},
		"large body":   {timeouts: upstream.Timeouts{Idle: soon, Connect: 30 * time.Second}, body: 300 << 10},
		"deadline":     {warm: true, timeouts: upstream.Timeouts{Total: soon, Connect: 30 * time.Second}},
		"half a frame": {timeouts: header, freeze: frame(func(f *http2.Framer, _ uint32) { _ = f.WritePing(false, [8]byte{}) })},
		"half a head": {timeouts: header, freeze: frame(func(f *http2.Framer, id uint32) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: attacks.HeaderBlock(":status", "200"), EndHeaders: true})
		})},
		"no end of the head": {timeouts: header, freeze: func(conn net.Conn, id uint32) {
			_ = http2.NewFramer(conn, nil).WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: attacks.HeaderBlock(":status", "200")})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			over := make(chan struct{})
			var conns atomic.Int64
			at := rawFrames(t, nil, func(conn net.Conn, f *http2.Framer) {
				first, warm := conns.Add(1) == 1, c.warm
				_ = f.WriteSettings()
				_ = f.WriteWindowUpdate(0, 1<<20)
				attacks.ReadRequests(f, func(h *http2.MetaHeadersFrame) bool {
					if first && !warm {
						if c.freeze != nil {
							c.freeze(conn, h.StreamID)
						}
						<-over
						return false
					}
					warm = false
					respond(f, h.StreamID, "ok", ":status", "200")
					return true
				})
			})
			gw, g := gateway(t, upstream.Config{Servers: []string{at}, Timeouts: c.timeouts, Retries: -1, OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: -1}})
			defer close(over)
			wanted := []int{http.StatusGatewayTimeout, 200}
			if c.warm {
				wanted = []int{200, http.StatusGatewayTimeout, 200}
			}
			for _, want := range wanted {
				r := request(t, "GET", gw.URL, "")
				if c.body > 0 {
					r = request(t, "POST", gw.URL, strings.Repeat("x", c.body))
				}
				res, err := client(t).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if res.StatusCode != want {
					t.Errorf("%s, want %d", res.Status, want)
				}
			}
			if n := conns.Load(); n != 2 {
				t.Errorf("%d connections", n)
			}
			awaitTrue(t, "connections are in use", func() bool { return !g.HTTP2InUse() })
		})
	}
}

// A server that is slow for some requests and not for others keeps the connection for the waiting requests.
func TestHTTP2Slow(t *testing.T) {
	t.Parallel()
	let := make(chan struct{})
	var conns atomic.Int64
	at := stockOrigin(t, nil, &conns, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			<-r.Context().Done()
		case "/begun":
			_ = http.NewResponseController(w).Flush()
			<-let
			_, _ = io.WriteString(w, "ok")
		}
	})
	gw, g := gateway(t, upstream.Config{
		Servers: []string{at}, Timeouts: upstream.Timeouts{Header: 2 * time.Second, Connect: 30 * time.Second}, OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: -1},
	})
	res, err := client(t).Do(request(t, "GET", gw.URL+"/begun", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := get(t, gw.URL+"/slow"); got.status != http.StatusGatewayTimeout {
		t.Errorf("%+v", got)
	}
	close(let)
	if b, err := io.ReadAll(res.Body); string(b) != "ok" || err != nil {
		t.Errorf("%q %v", b, err)
	}
	if st := g.Status()[0]; st.Failures != 1 {
		t.Errorf("%+v", st)
	}
	awaitTrue(t, "connections are in use", func() bool { return !g.HTTP2InUse() })
}
