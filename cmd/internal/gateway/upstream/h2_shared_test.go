package upstream_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/forwardauthtest"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// nginx closes the connection of requests whose headers are larger than it accepts. Requests of other clients in flight are
// served, and no failure is counted.
func TestHTTP2LargeHeadNginx(t *testing.T) {
	forwardauthtest.Need(t, "nginx")
	const honest, hostile = 12, 20
	arrived, let := make(chan struct{}, honest), make(chan struct{})
	app := origin(t, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-let
		_, _ = io.WriteString(w, "ok")
	})
	directory, a, b := t.TempDir(), tcptest.FreeAddress(t), tcptest.FreeAddress(t)
	write(t, filepath.Join(directory, "nginx.conf"), fmt.Appendf(nil, `
worker_processes 1; pid nginx.pid; daemon off;
events {}
http {
	access_log off; client_body_temp_path .; proxy_temp_path .; fastcgi_temp_path .; uwsgi_temp_path .; scgi_temp_path .;
	server { listen %s http2; listen %s http2; location / { proxy_pass %s; } }
}`, a, b, app))
	forwardauthtest.Start(t, a, exec.Command("nginx", "-e", "stderr", "-p", directory, "-c", "nginx.conf", "-g", "master_process off;"))
	gw, g := gateway(t, upstream.Config{Servers: []string{"h2c://" + a, "h2c://" + b}})
	var all sync.WaitGroup
	for range honest {
		all.Go(func() {
			if got := do(t, client(t), request(t, "POST", gw.URL, "x")); got.status != 200 || got.body != "ok" {
				t.Errorf("%+v", got)
			}
		})
	}
	for range honest {
		<-arrived
	}
	for range hostile {
		r := request(t, "GET", gw.URL, "")
		r.Header.Set("X-Large", strings.Repeat("x", 40<<10))
		if got := do(t, client(t), r); got.status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%+v", got)
		}
	}
	close(let)
	all.Wait()
	unharmed(t, g)
}

// unharmed fails the test if a failure was counted or a server was ejected.
func unharmed(t *testing.T, g *upstream.Group) {
	t.Helper()
	for _, st := range g.Status() {
		if st.Failures != 0 || st.Ejections != 0 {
			t.Errorf("%+v", st)
		}
	}
}

// A connection that is lost with many requests on it is one failure of the server. Idempotent requests are retried.
func TestHTTP2LostConnection(t *testing.T) {
	const crowd = 12
	for name, end := range map[string]func(conn net.Conn, f *http2.Framer){
		"closed":        func(net.Conn, *http2.Framer) {},
		"GOAWAY":        func(_ net.Conn, f *http2.Framer) { _ = f.WriteGoAway(1<<31-1, http2.ErrCodeEnhanceYourCalm, nil) },
		"GOAWAY before": func(_ net.Conn, f *http2.Framer) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) },
		"compression": func(conn net.Conn, f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff}, EndHeaders: true})
			_, _ = io.Copy(io.Discard, conn)
		},
	} {
		for _, method := range []string{"GET", "POST", "begun"} {
			t.Run(name+"/"+method, func(t *testing.T) {
				t.Parallel()
				body := bytes.Repeat([]byte("x"), 100)
				hostile := rawFrames(t, nil, func(conn net.Conn, f *http2.Framer) {
					_ = f.WriteSettings()
					n := 0
					attacks.ReadRequests(f, func(h *http2.MetaHeadersFrame) bool {
						n++
						if method == "begun" {
							_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: attacks.HeaderBlock(":status", "200"), EndHeaders: true})
							_ = f.WriteData(h.StreamID, false, body)
						}
						if n == crowd {
							end(conn, f)
						}
						return n < crowd
					})
				})
				var others atomic.Int64
				well := origin(t, func(w http.ResponseWriter, _ *http.Request) { others.Add(1); _, _ = io.WriteString(w, "ok") })
				gw, g := gateway(t, upstream.Config{Servers: []string{hostile, well}, OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: 3}, Retries: 1})
				var all sync.WaitGroup
				var ok, failed, broken atomic.Int64
				for range 2 * crowd { // every second request goes to the other server
					all.Go(func() {
						m := method
						if m == "begun" {
							m = "GET"
						}
						res, err := client(t).Do(request(t, m, gw.URL, ""))
						if err != nil {
							t.Error(err)
							return
						}
						defer res.Body.Close()
						switch _, err := io.Copy(io.Discard, res.Body); {
						case err != nil:
							broken.Add(1)
						case res.StatusCode == 200:
							ok.Add(1)
						default:
							failed.Add(1)
						}
					})
				}
				all.Wait()
				want := [3]int64{2 * crowd, 0, 0}
				switch {
				case method == "POST" && name != "GOAWAY before": // which the server has not declared unprocessed
					want = [3]int64{crowd, crowd, 0}
				case method == "begun":
					want = [3]int64{crowd, 0, crowd}
				}
				// The retry budget may be smaller than the crowd.
				got := [3]int64{ok.Load(), failed.Load(), broken.Load()}
				if want[0] == 2*crowd && got[1] > 2 || want[0] < 2*crowd && got != want {
					t.Errorf("%v complete, failed and truncated, want %v", got, want)
				}
				if st := g.Status()[0]; st.Failures != 1 || st.Ejections != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// Requests with large heads use separate connections up to a maximum, and share these beyond it.
func TestHTTP2LargeHeads(t *testing.T) {
	const most, crowd = 64, 100
	var conns, shared atomic.Int64
	arrived, let := make(chan struct{}, crowd+1), make(chan struct{})
	at := rawFrames(t, nil, func(_ net.Conn, f *http2.Framer) {
		conns.Add(1)
		_ = f.WriteSettings()
		var write sync.Mutex
		large := int64(-1)
		attacks.ReadRequests(f, func(h *http2.MetaHeadersFrame) bool {
			is := int64(0)
			for _, f := range h.Fields {
				if f.Name == "x-large" {
					is = 1
				}
			}
			if large >= 0 && large != is {
				shared.Add(1)
			}
			large = is
			go func() {
				arrived <- struct{}{}
				<-let
				write.Lock()
				defer write.Unlock()
				respond(f, h.StreamID, "ok", ":status", "200")
			}()
			return true
		})
	})
	gw, g := gateway(t, upstream.Config{Servers: []string{at}})
	reached := bounds.OwnConnections.Count()
	var all sync.WaitGroup
	for i := range crowd + 1 {
		r := request(t, "GET", gw.URL, "")
		if i < crowd {
			r.Header.Set("X-Large", strings.Repeat("x", 9<<10))
		}
		all.Go(func() {
			if got := do(t, client(t), r); got.status != 200 || got.body != "ok" {
				t.Errorf("%+v", got)
			}
		})
	}
	for range crowd + 1 {
		<-arrived
	}
	if n := conns.Load(); n != most+1 || shared.Load() != 0 {
		t.Errorf("%d connections, want %d; %d requests shared one with requests of the other kind", n, most+1, shared.Load())
	}
	if n := bounds.OwnConnections.Count() - reached; n < crowd-most {
		t.Errorf("the bound was reached %d times", n)
	}
	close(let)
	all.Wait()
	if st := g.Status()[0]; st.Failures != 0 {
		t.Errorf("%+v", st)
	}
}

// Go's HTTP/2 server treats trailers of a stream that it has closed as a stream with a lower number, and closes the connection.
// Requests with trailers could break those of others this way, which is one reason why the gateway sends no trailers.
func TestHTTP2LateTrailers(t *testing.T) {
	at := origin(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	conn, err := net.Dial("tcp", strings.TrimPrefix(at, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, http2.ClientPreface)
	f := http2.NewFramer(conn, conn)
	_ = f.WriteSettings()
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: attacks.HeaderBlock(":method", "POST", ":scheme", "http", ":path", "/", ":authority", "x"), EndHeaders: true})
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.RSTStreamFrame: // it does not read the rest of the request
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: attacks.HeaderBlock("x-sum", "1"), EndHeaders: true, EndStream: true})
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeProtocol {
				t.Errorf("%v", frame)
			}
			return
		}
	}
}
