package upstream_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
)

// inBubble runs a gateway at gw:80 in front of the servers, all in memory and with a virtual clock.
func inBubble(t *testing.T, cfg upstream.Config, servers map[string]http.HandlerFunc,
	run func(t *testing.T, m *memory, g *upstream.Group),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := new(memory)
		g, err := upstream.New(cfg.WithDial(m.dial))
		if err != nil {
			t.Fatal(err)
		}
		var ends []func()
		for at, h := range servers {
			ends = append(ends, m.serve(at, h))
		}
		ends = append(ends, m.serve("gw:80", g))
		run(t, m, g)
		g.Close()
		for _, end := range ends {
			end()
		}
		synctest.Wait()
	})
}

func ask(t *testing.T, m *memory, r *http.Request) answered {
	t.Helper()
	c := m.client()
	defer c.CloseIdleConnections()
	return do(t, c, r)
}

func bubbleWays(t *testing.T, run func(t *testing.T, way func(upstream.Config) upstream.Config)) {
	t.Helper()
	t.Run("lane", func(t *testing.T) { run(t, func(c upstream.Config) upstream.Config { return c }) })
	t.Run("transport", func(t *testing.T) { run(t, upstream.Config.WithoutPool) })
}

// Requests to a server that does not respond or accept connections fail after the configured timeouts.
func TestHeaderTimeout(t *testing.T) {
	bubbleWays(t, func(t *testing.T, way func(upstream.Config) upstream.Config) {
		cfg := way(upstream.Config{Servers: []string{"http://a:80"}, Timeouts: upstream.Timeouts{Header: 7 * time.Second}})
		hang := func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}
		inBubble(t, cfg, map[string]http.HandlerFunc{"a:80": hang}, func(t *testing.T, m *memory, g *upstream.Group) {
			for i, r := range []*http.Request{request(t, "GET", "http://gw:80/", ""), request(t, "POST", "http://gw:80/", strings.Repeat("x", 100_000))} {
				begin := time.Now()
				got := ask(t, m, r)
				if took := time.Since(begin); got.status != 504 || took != 7*time.Second || got.header.Get("Content-Type") != "application/problem+json" {
					t.Errorf("%d after %v: %+v", i, took, got)
				}
			}
			if s := g.Status()[0]; s.Failures != 2 || s.InFlight != 0 {
				t.Errorf("%+v", s)
			}
		})
	})
}

func TestConnectTimeout(t *testing.T) {
	bubbleWays(t, func(t *testing.T, way func(upstream.Config) upstream.Config) {
		synctest.Test(t, func(t *testing.T) {
			m := new(memory)
			m.listen("a:80") // and never accepts
			g, err := upstream.New(way(upstream.Config{Servers: []string{"http://a:80"}, Timeouts: upstream.Timeouts{Connect: 3 * time.Second}}.WithDial(m.dial)))
			if err != nil {
				t.Fatal(err)
			}
			end := m.serve("gw:80", g)
			begin := time.Now()
			got := ask(t, m, request(t, "GET", "http://gw:80/", ""))
			if took := time.Since(begin); got.status != 502 || took != 3*time.Second {
				t.Errorf("after %v: %+v", took, got)
			}
			end()
		})
	})
}

// The total timeout is configured, or is a deadline of the request with a cause.
func TestTotalTimeout(t *testing.T) {
	bubbleWays(t, func(t *testing.T, way func(upstream.Config) upstream.Config) {
		hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		cfg := way(upstream.Config{Servers: []string{"http://a:80"}, Timeouts: upstream.Timeouts{Total: 2 * time.Second}})
		inBubble(t, cfg, map[string]http.HandlerFunc{"a:80": hang}, func(t *testing.T, m *memory, g *upstream.Group) {
			end := m.serve("route:80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancelCause(r.Context())
				defer time.AfterFunc(time.Second, func() { cancel(context.DeadlineExceeded) }).Stop()
				g.ServeHTTP(w, r.WithContext(ctx))
			}))
			defer end()
			for at, want := range map[string]time.Duration{"gw": 2 * time.Second, "route": time.Second} {
				begin := time.Now()
				got := ask(t, m, request(t, "GET", "http://"+at+":80/", ""))
				if took := time.Since(begin); got.status != 504 || took != want {
					t.Errorf("%s after %v: %+v", at, took, got)
				}
			}
		})
	})
}

// A body that stalls ends the round trip after the idle timeout, on either side and in either direction.
func TestIdle(t *testing.T) {
	bubbleWays(t, func(t *testing.T, way func(upstream.Config) upstream.Config) {
		cfg := way(upstream.Config{Servers: []string{"http://a:80"}, Timeouts: upstream.Timeouts{Idle: 5 * time.Second, Header: time.Minute}})
		cfg.Retries = -1
		server := func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/stops":
				for range 3 { // slow, but not stalled
					_, _ = io.WriteString(w, "x")
					_ = http.NewResponseController(w).Flush()
					<-time.After(4 * time.Second)
				}
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			case "/endless":
				for {
					if _, err := w.Write(make([]byte, 32<<10)); err != nil {
						return
					}
				}
			default:
				_, _ = io.Copy(io.Discard, r.Body)
			}
		}
		inBubble(t, cfg, map[string]http.HandlerFunc{"a:80": server}, func(t *testing.T, m *memory, g *upstream.Group) {
			begin := time.Now()
			got := ask(t, m, request(t, "GET", "http://gw:80/stops", ""))
			if took := time.Since(begin); got.status != 200 || got.body != "xxxx" || got.err == nil || took != 17*time.Second {
				t.Errorf("a server that stalls: after %v: %+v", took, got)
			}

			// A caller that stops reading.
			conn, err := m.dial(t.Context(), "", "gw:80")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
			_, _ = io.ReadFull(conn, make([]byte, 1000))
			begin = time.Now()
			for g.Status()[0].InFlight != 0 {
				<-time.After(time.Second)
			}
			if took := time.Since(begin); took > 7*time.Second || took < 5*time.Second {
				t.Errorf("a caller that does not read is disconnected after %v", took)
			}
			conn.Close()

			// Callers that stop sending, with a small body and with one of any length.
			for _, head := range []string{"Content-Length: 100", "Content-Length: 1000000", "Transfer-Encoding: chunked"} {
				conn, err := m.dial(t.Context(), "", "gw:80")
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				go func() { _, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n1\r\nx\r\n", head) }()
				b, err := io.ReadAll(conn)
				if took := time.Since(begin); !strings.HasPrefix(string(b), "HTTP/1.1 408 ") || took < 5*time.Second || took > 6*time.Second {
					t.Errorf("%s: after %v %v: %s", head, took, err, b)
				}
				conn.Close()
			}
			if s := g.Status()[0]; s.InFlight != 0 || s.Failures != 1 {
				t.Errorf("%+v", s) // only the stall of the server is its failure
			}
		})
	})
}

// Idle connections are closed after keepIdle.
func TestMaxIdleConns(t *testing.T) {
	ok := func(http.ResponseWriter, *http.Request) {}
	inBubble(t, upstream.Config{Servers: []string{"http://a:80"}}, map[string]http.HandlerFunc{"a:80": ok}, func(t *testing.T, m *memory, g *upstream.Group) {
		ask(t, m, request(t, "GET", "http://gw:80/", ""))
		<-time.After(20 * time.Second)
		if n := g.IdleConns(); n != 1 {
			t.Errorf("%d idle connections", n)
		}
		<-time.After(20 * time.Second)
		if n := g.IdleConns(); n != 0 {
			t.Errorf("%d idle connections after keepIdle", n)
		}
	})
}

var _ net.Listener = (*memoryListener)(nil)
