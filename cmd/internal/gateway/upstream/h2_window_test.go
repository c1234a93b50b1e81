package upstream_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

type fromKey struct{}

// addressedGateway starts a gateway that takes the client's address from the header X-From.
func addressedGateway(t testing.TB, cfg upstream.Config) (*httptest.Server, *upstream.Group) {
	t.Helper()
	cfg.Client = func(ctx context.Context) netip.Prefix {
		p, _ := ctx.Value(fromKey{}).(netip.Prefix)
		return p
	}
	return gatewayWith(t, cfg, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if from := r.Header.Get("X-From"); from != "" {
				r = r.WithContext(context.WithValue(r.Context(), fromKey{}, netip.MustParsePrefix(from)))
			}
			h.ServeHTTP(w, r)
		})
	})
}

// stockOrigin starts Go's HTTP/2 server with the connection window of many servers, and counts its connections.
func stockOrigin(t *testing.T, authority *certtest.Authority, conns *atomic.Int64, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = bothProtocols()
	s.Config.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	if authority == nil {
		s.Start()
		t.Cleanup(s.Close)
		return strings.Replace(s.URL, "http://", "h2c://", 1)
	}
	pair := authority.Issue(t, "inner.example.com")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	s.Config.Protocols.SetHTTP2(true)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// told is a body that signals when a number of bytes has been read.
type told struct {
	io.Reader
	left int
	once sync.Once
	tell func()
}

func (r *told) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if r.left -= n; r.left <= 0 {
		r.once.Do(r.tell)
	}
	return n, err
}

// Bodies that a server does not read do not block the requests of other clients, and no failure is counted.
func TestHTTP2UnreadBodies(t *testing.T) {
	authority := certtest.New(t)
	ca := write(t, filepath.Join(t.TempDir(), "ca.pem"), authority.PEM)
	for _, c := range []struct {
		name, path   string
		stalls, body int
		secure       bool
	}{
		{name: "one", path: "/stall", stalls: 1, body: 3 << 20},
		{name: "many", path: "/stall", stalls: 40, body: 3 << 20},
		{name: "many over TLS", path: "/stall", stalls: 40, body: 3 << 20, secure: true},
		{name: "answered", path: "/answer", stalls: 8, body: 3 << 20},
		{name: "answered and sent", path: "/answer", stalls: 8, body: 64<<10 - 1},
		{name: "small", path: "/stall", stalls: 40, body: 16 << 10},
		{name: "small and answered", path: "/answer", stalls: 40, body: 16 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			arrived, let := make(chan struct{}, c.stalls), make(chan struct{})
			handler := func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/answer":
					w.WriteHeader(200)
					_ = http.NewResponseController(w).Flush()
					fallthrough
				case "/stall":
					arrived <- struct{}{}
					<-let
				default:
					n, _ := io.Copy(io.Discard, r.Body)
					_, _ = fmt.Fprint(w, n)
				}
			}
			var authorityOf *certtest.Authority
			if c.secure {
				authorityOf = authority
			}
			var conns [2]atomic.Int64
			gw, g := addressedGateway(t, upstream.Config{
				Servers:          []string{stockOrigin(t, authorityOf, &conns[0], handler), stockOrigin(t, authorityOf, &conns[1], handler)},
				OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: 1}, TLS: upstream.TLS{CA: ca, ServerName: "inner.example.com"},
				Timeouts: upstream.Timeouts{Connect: 30 * time.Second, TLS: 30 * time.Second},
			})
			var stalled, sent sync.WaitGroup
			for range c.stalls {
				sent.Add(1)
				body := &told{Reader: bytes.NewReader(make([]byte, c.body)), left: min(c.body, 64<<10), tell: sent.Done}
				r, err := http.NewRequestWithContext(t.Context(), "POST", gw.URL+c.path, body)
				if err != nil {
					t.Fatal(err)
				}
				r.ContentLength = int64(c.body)
				r.Header.Set("X-From", "192.0.2.1/32")
				stalled.Go(func() {
					if res, err := client(t).Do(r); err == nil { // it may be aborted
						_, _ = io.Copy(io.Discard, res.Body)
						res.Body.Close()
					}
				})
			}
			for range c.stalls {
				<-arrived
			}
			sent.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // within which they are served, while others wait
			defer cancel()
			const each = 6
			var honest sync.WaitGroup
			for range each {
				for _, n := range []int{-1, 0, 10, 16 << 10, 100 << 10} { // -1: of unknown length
					r := request(t, "GET", gw.URL, "")
					want := max(n, 0)
					switch {
					case n < 0:
						want = 10
						r = request(t, "POST", gw.URL, "0123456789")
						r.ContentLength = -1
					case n > 0:
						r = request(t, "POST", gw.URL, strings.Repeat("x", n))
					}
					r.Header.Set("X-From", "192.0.2.2/32")
					honest.Go(func() {
						res, err := client(t).Do(r.WithContext(ctx))
						if err != nil {
							t.Errorf("%d bytes: %v", n, err)
							return
						}
						defer res.Body.Close()
						if b, err := io.ReadAll(res.Body); res.StatusCode != 200 || string(b) != fmt.Sprint(want) || err != nil {
							t.Errorf("%d bytes: %d %q %v", n, res.StatusCode, b, err)
						}
					})
				}
			}
			honest.Wait()
			for i := range conns { // of the one client, of the others, and shared ones
				if n := conns[i].Load(); n > 16+3*each+1 {
					t.Errorf("%d connections", n)
				}
			}
			close(let)
			stalled.Wait()
			unharmed(t, g)
			awaitTrue(t, "connections are in use", func() bool { return !g.HTTP2InUse() })
		})
	}
}

// Open streams do not block each other or other requests, whatever their number.
func TestHTTP2OpenStreams(t *testing.T) {
	const streams = 100
	var conns atomic.Int64
	at := stockOrigin(t, nil, &conns, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.Flush()
		b := make([]byte, 1)
		for {
			if _, err := io.ReadFull(r.Body, b); err != nil {
				return
			}
			_, _ = w.Write(b)
			_ = control.Flush()
		}
	})
	gw, g := gateway(t, upstream.Config{Servers: []string{at}, Timeouts: upstream.Timeouts{Connect: 30 * time.Second}})
	reached := bounds.OwnConnections.Count()
	type stream struct {
		to   *io.PipeWriter
		from io.ReadCloser
	}
	say := func(s stream, text string) {
		_, _ = io.WriteString(s.to, text)
		b := make([]byte, len(text))
		if _, err := io.ReadFull(s.from, b); err != nil || string(b) != text {
			t.Errorf("%q %v", b, err)
		}
	}
	var open []stream
	for range streams {
		from, to := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), "POST", gw.URL, from)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client(t).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		s := stream{to, res.Body}
		say(s, "a")
		open = append(open, s)
	}
	for _, s := range open {
		say(s, "b")
	}
	if got := do(t, client(t), request(t, "POST", gw.URL, "small")); got.body != "small" {
		t.Errorf("%+v", got)
	}
	if got := get(t, gw.URL); got.status != 200 {
		t.Errorf("%+v", got)
	}
	if n := conns.Load(); n != 64+1 {
		t.Errorf("%d connections", n)
	}
	if n := bounds.OwnConnections.Count() - reached; n < streams-64 {
		t.Errorf("the bound was reached %d times", n)
	}
	for _, s := range open {
		s.to.Close()
		if b, err := io.ReadAll(s.from); len(b) != 0 || err != nil {
			t.Errorf("%q %v", b, err)
		}
		s.from.Close()
	}
	if st := g.Status()[0]; st.Failures != 0 {
		t.Errorf("%+v", st)
	}
	awaitTrue(t, "connections are in use", func() bool { return !g.HTTP2InUse() })
}

// An address has a share of the connections with one request each, and does not share them with other addresses.
func TestHTTP2OwnShare(t *testing.T) {
	const crowd, share = 40, 16
	var mixed atomic.Int64
	var mu sync.Mutex
	conns := map[string]int{}
	arrived, let := make(chan struct{}, 2*crowd), make(chan struct{})
	at := rawFrames(t, nil, func(_ net.Conn, f *http2.Framer) {
		_ = f.WriteSettings()
		var write sync.Mutex
		of := ""
		attacks.ReadRequests(f, func(h *http2.MetaHeadersFrame) bool {
			i := slices.IndexFunc(h.Fields, func(f hpack.HeaderField) bool { return f.Name == "x-from" })
			from := h.Fields[i].Value
			switch of {
			case "":
				of = from
				mu.Lock()
				conns[from]++
				mu.Unlock()
			case from:
			default:
				mixed.Add(1)
			}
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
	gw, g := addressedGateway(t, upstream.Config{Servers: []string{at}, Timeouts: upstream.Timeouts{Connect: 30 * time.Second}})
	var all sync.WaitGroup
	ask := func(from string, n int) {
		for range n {
			r := request(t, "GET", gw.URL, "")
			r.Header.Set("X-Large", strings.Repeat("x", 12<<10))
			r.Header.Set("X-From", from)
			all.Go(func() {
				if got := do(t, client(t), r); got.status != 200 || got.body != "ok" {
					t.Errorf("%+v", got)
				}
			})
		}
		for range n {
			<-arrived
		}
	}
	ask("192.0.2.1/32", crowd)
	ask("192.0.2.2/32", 3)
	ask("2001:db8::/64", crowd)
	if mixed.Load() != 0 || conns["192.0.2.1/32"] != share || conns["192.0.2.2/32"] != 3 || conns["2001:db8::/64"] != share {
		t.Errorf("%v connections; %d requests on those of another address", conns, mixed.Load())
	}
	close(let)
	all.Wait()
	awaitTrue(t, "connections are in use", func() bool { return !g.HTTP2InUse() })
}
