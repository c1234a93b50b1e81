package upstream_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

// rawFrames starts a server whose connections are served frame by frame by a function, over TLS if there is an authority.
func rawFrames(t testing.TB, authority *certtest.Authority, serve func(conn net.Conn, f *http2.Framer)) (at string) {
	t.Helper()
	scheme := "h2c://"
	var cfg *tls.Config
	if authority != nil {
		pair := authority.Issue(t, "inner.example.com")
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		scheme, cfg = "https://", &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}}
	}
	at = rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10) // so that writes to a server that does not read block soon
		if cfg != nil {
			conn = tls.Server(conn, cfg)
			in = bufio.NewReader(conn)
		}
		if _, err := io.ReadFull(in, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(conn, in)
		f.AllowIllegalWrites = true
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		serve(conn, f)
	})
	return scheme + strings.TrimPrefix(at, "http://")
}

// Whatever an HTTP/2 server does, each request ends within its timeouts, the other server of the group keeps serving, and no
// resources leak.
func TestHTTP2Violations(t *testing.T) {
	authority := certtest.New(t)
	ca := write(t, filepath.Join(t.TempDir(), "ca.pem"), authority.PEM)
	var all sync.WaitGroup
	for name, v := range attacks.Violations() {
		all.Go(func() { violate(t, name+" over h2c", v, nil, "") })
		switch name {
		case "nothing", "stream window", "connection window", "no further streams", "pings", "not read", "read byte by byte":
			all.Go(func() { violate(t, name+" over TLS", v, authority, ca) })
		}
	}
	all.Wait()
	var stacks bytes.Buffer
	awaitTrue(t, "goroutines are left", func() bool {
		stacks.Reset()
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		s := stacks.String()
		return !strings.Contains(s, "http2.(*clientStream)") && !strings.Contains(s, "http2.(*ClientConn)") && !strings.Contains(s, "upstream.(*h2Pool)")
	})
	if t.Failed() {
		t.Log(stacks.String())
	}
}

// violate sends eight requests through a gateway with two servers, one of which commits a violation.
func violate(t *testing.T, name string, v attacks.Violation, authority *certtest.Authority, ca string) {
	t.Helper()
	env := &scope{TB: t}
	defer env.end()
	over := make(chan struct{})
	hostile := rawFrames(env, authority, func(conn net.Conn, f *http2.Framer) {
		left := make(chan struct{})
		defer close(left)
		go func() {
			select {
			case <-over: // a server that does not read may notice the end of the connection much later
				_ = conn.SetDeadline(time.Unix(1, 0))
			case <-left:
			}
		}()
		v.Serve(conn, f)
	})
	env.Cleanup(func() { close(over) }) // after the gateway has ended
	well := origin(env, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "well")
	})
	gw, g := gateway(env, upstream.Config{
		Servers: []string{hostile, well}, OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: -1}, Retries: -1,
		TLS: upstream.TLS{CA: ca, ServerName: "inner.example.com"},
		// Long enough for the other server on a busy computer: all violations run at once.
		Timeouts: upstream.Timeouts{Connect: 10 * time.Second, Header: 6 * time.Second, Idle: 4 * time.Second},
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := client(env)
	var served atomic.Int64
	var all sync.WaitGroup
	for _, body := range []int{0, 0, 0, 0, 10, 10, 300 << 10, 300 << 10} {
		r := request(t, "GET", gw.URL, "").WithContext(ctx)
		if body > 0 {
			r = request(t, "POST", gw.URL, strings.Repeat("x", body)).WithContext(ctx)
		}
		all.Go(func() {
			res, err := c.Do(r)
			if err == nil {
				var b []byte
				b, err = io.ReadAll(res.Body)
				res.Body.Close()
				if err == nil && string(b) == "well" {
					served.Add(1)
				}
			}
			if errors.Is(err, context.DeadlineExceeded) { // other errors are truncated responses
				t.Errorf("%s: %s with %d bytes: %v", name, r.Method, body, err)
			}
		})
	}
	all.Wait()
	if n := served.Load(); n != 4 {
		t.Errorf("%s: the other server served %d of 4", name, n)
	}
	awaitTrue(t, name+": requests are in flight", func() bool { return g.Status()[0].InFlight == 0 && g.Status()[1].InFlight == 0 })
}

// scope is a part of a test with its own cleanup.
type scope struct {
	testing.TB
	ends []func()
}

func (s *scope) Cleanup(f func()) { s.ends = append(s.ends, f) }

func (s *scope) end() {
	for i := len(s.ends) - 1; i >= 0; i-- {
		s.ends[i]()
	}
}

// awaitTrue waits until is returns true, and fails the test with the message not after a minute.
func awaitTrue(t *testing.T, not string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); !is(); {
		select {
		case <-tick.C:
		case <-end:
			t.Error(not)
			return
		}
	}
}

// A server that violates the protocol on a stream loses only that stream: other requests on the connection continue.
func TestHTTP2StreamErrors(t *testing.T) {
	violation := func(name string) func(*http2.Framer, uint32) {
		respond := attacks.Violations()[name].Respond
		return func(f *http2.Framer, id uint32) { respond(nil, f, id) }
	}
	authority := certtest.New(t)
	ca := write(t, filepath.Join(t.TempDir(), "ca.pem"), authority.PEM)
	head := func(f *http2.Framer, id uint32, pairs ...string) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: attacks.HeaderBlock(pairs...), EndHeaders: true})
	}
	for name, violate := range map[string]func(f *http2.Framer, id uint32){
		"window":       violation("stream window"),
		"zero window":  violation("window of zero"),
		"no status":    func(f *http2.Framer, id uint32) { head(f, id, "x", "y") },
		"upper case":   func(f *http2.Framer, id uint32) { head(f, id, ":status", "200", "X-Upper", "y") },
		"bad value":    func(f *http2.Framer, id uint32) { head(f, id, ":status", "200", "x", "a\r\nb") },
		"pseudo later": func(f *http2.Framer, id uint32) { head(f, id, "x", "y", ":status", "200") },
		"large header": func(f *http2.Framer, id uint32) {
			block := append(attacks.HeaderBlock(":status", "200", "x-large", strings.Repeat("x", 3000)), bytes.Repeat([]byte{0xbe}, 100)...)
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
		},
		"data first": violation("data before headers"),
	} {
		for scheme, a := range map[string]*certtest.Authority{"h2c": nil, "https": authority} {
			t.Run(name+"/"+scheme, func(t *testing.T) {
				t.Parallel()
				var conns atomic.Int64
				let, arrived := make(chan struct{}), make(chan struct{}, 1)
				at := rawFrames(t, a, func(_ net.Conn, f *http2.Framer) {
					conns.Add(1)
					_ = f.WriteSettings()
					first := uint32(0)
					attacks.ReadRequests(f, func(h *http2.MetaHeadersFrame) bool {
						switch h.PseudoValue("path") {
						case "/first":
							first = h.StreamID
							arrived <- struct{}{}
						case "/bad":
							violate(f, h.StreamID)
						default:
							if first != 0 {
								<-let
								respond(f, first, "ok", ":status", "200")
							}
							respond(f, h.StreamID, "ok", ":status", "200")
						}
						return true
					})
				})
				gw, g := gateway(t, upstream.Config{Servers: []string{at}, Retries: -1, TLS: upstream.TLS{CA: ca, ServerName: "inner.example.com"}})
				var all sync.WaitGroup
				ok := func(path string) {
					if got := get(t, gw.URL+path); got.status != 200 || got.body != "ok" {
						t.Errorf("%s: %+v", path, got)
					}
				}
				all.Go(func() { ok("/first") })
				<-arrived
				if got := get(t, gw.URL+"/bad"); got.status != 502 {
					t.Errorf("%+v", got)
				}
				close(let)
				all.Go(func() { ok("/") })
				all.Wait()
				if st := g.Status()[0]; st.Failures != 1 || st.InFlight != 0 || conns.Load() != 1 {
					t.Errorf("%d connections, %+v", conns.Load(), st)
				}
			})
		}
	}
}

// A server that allows no streams has received nothing: even requests that are not idempotent are sent to another server, and
// soon.
func TestHTTP2NoStreams(t *testing.T) {
	for _, name := range []string{"no streams", "no further streams"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := attacks.Violations()[name]
			var got atomic.Int64
			full := rawFrames(t, nil, func(conn net.Conn, f *http2.Framer) {
				_ = f.WriteSettings(v.Settings...)
				attacks.ReadRequests(f, func(h *http2.MetaHeadersFrame) bool {
					got.Add(1)
					if v.Respond != nil {
						v.Respond(conn, f, h.StreamID)
						respond(f, h.StreamID, "well", ":status", "200")
					}
					return true
				})
			})
			well := origin(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, "well")
			})
			gw, _ := gateway(t, upstream.Config{
				Servers: []string{full, well}, OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: -1},
				Timeouts: upstream.Timeouts{Connect: time.Second, Header: time.Hour, Idle: time.Hour},
			})
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if got := do(t, client(t), request(t, "POST", gw.URL, "x")); got.status != 200 || got.body != "well" {
						t.Errorf("%+v", got)
					}
				})
			}
			all.Wait()
			if v.Respond == nil && got.Load() != 0 {
				t.Errorf("%d requests were sent", got.Load())
			}
		})
	}
}
