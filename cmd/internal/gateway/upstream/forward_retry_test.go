package upstream_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
)

// counted starts a server that counts its requests.
func counted(t testing.TB, n *atomic.Int64) string {
	return origin(t, func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		b, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s", r.Method, b)
	})
}

// dying starts a server that reads a request, writes a part of a response, and closes the connection.
func dying(t testing.TB, n *atomic.Int64, says string) string {
	return rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		n.Add(1)
		_, _ = io.WriteString(conn, says)
	})
}

func bothWays(t *testing.T, run func(t *testing.T, way func(upstream.Config) upstream.Config)) {
	t.Helper()
	t.Run("lane", func(t *testing.T) { t.Parallel(); run(t, func(c upstream.Config) upstream.Config { return c }) })
	t.Run("transport", func(t *testing.T) { t.Parallel(); run(t, upstream.Config.WithoutPool) })
}

// If a connection is refused, nothing was sent: another server gets the request, whatever its method.
func TestRetryRefused(t *testing.T) {
	bothWays(t, func(t *testing.T, way func(upstream.Config) upstream.Config) {
		var n atomic.Int64
		gw, g := gateway(t, way(upstream.Config{
			Servers: []string{refusing(t), refusing(t), counted(t, &n)}, OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: -1},
		}))
		c := client(t)
		for i := range 9 {
			for _, body := range []string{"", "small", strings.Repeat("x", 100_000)} {
				if got := do(t, c, request(t, "POST", gw.URL, body)); got.status != 200 || got.body != "POST "+body {
					t.Errorf("%d: %d %.100s", i, got.status, got.body)
				}
			}
		}
		if s := g.Status(); n.Load() != 27 || s[2].Failures != 0 || s[0].Failures+s[1].Failures != s[0].Retries+s[1].Retries || s[0].Failures == 0 {
			t.Errorf("%d requests arrived: %+v", n.Load(), s)
		}
	})
	gw, _ := gateway(t, upstream.Config{Servers: []string{refusing(t)}})
	if got := get(t, gw.URL); got.status != 502 || !strings.Contains(got.body, "cannot be reached") || got.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%+v", got)
	}
}

// A connection ends before the response has started: an idempotent request is sent to another server once, others are not.
func TestRetryBroken(t *testing.T) {
	bothWays(t, func(t *testing.T, way func(upstream.Config) upstream.Config) {
		for _, c := range []struct {
			method, body, says string
			again              bool
		}{
			{"GET", "", "", true},
			{"HEAD", "", "", true},
			{"DELETE", "", "", true},
			{"PUT", "", "", true},
			{"PUT", "body", "", false},
			{"POST", "", "", false},
			{"POST", "body", "", false},
			{"POST", strings.Repeat("x", 100_000), "", false},
			{"PATCH", "", "", false},
			{"GET", "", "HTTP/1.1 200 O", false}, // the response had started
			{"GET", "", "H", false},
		} {
			var died, lived atomic.Int64
			gw, _ := gateway(t, way(upstream.Config{Servers: []string{counted(t, &lived), dying(t, &died, c.says)}})) // round robin starts with the second
			got := do(t, client(t), request(t, c.method, gw.URL, c.body))
			want, others := 502, int64(0)
			if c.again {
				want, others = 200, 1
			}
			if got.status != want || died.Load() != 1 || lived.Load() != others {
				t.Errorf("%s with %d bytes, response %q: %d; %d and %d arrived", c.method, len(c.body), c.says, got.status, died.Load(), lived.Load())
			}
		}
	})
}

// A server closes idle connections just as one is used: an idempotent request is sent again once, however many such connections
// there are.
func TestRetryStale(t *testing.T) {
	bothWays(t, func(t *testing.T, way func(upstream.Config) upstream.Config) {
		const conns = 5
		for method, want := range map[string]int{"GET": 2, "POST": 1} {
			var seen, stale atomic.Int64
			var all sync.WaitGroup
			all.Add(conns)
			at := rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
				for first := true; ; first = false {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					if seen.Add(1) <= conns { // each on another connection
						all.Done()
						all.Wait()
					}
					if !first {
						stale.Add(1)
						return // it has read the request, and the gateway cannot know whether it was processed
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			})
			gw, g := gateway(t, way(upstream.Config{Servers: []string{at}, Retries: -1}))
			ask := func() int {
				r := request(t, method, gw.URL, "")
				r.Header.Set("Idempotency-Key", "1") // with which Go's client retries a POST
				return do(t, client(t), r).status
			}
			var first sync.WaitGroup
			for range conns {
				first.Go(func() {
					if got := ask(); got != 200 {
						t.Errorf("%s: %d", method, got)
					}
				})
			}
			first.Wait()
			got := ask()
			again := seen.Load() - conns
			if again != int64(want) || got != 200 && (method == "POST") != (got == 502) && stale.Load() != again {
				t.Errorf("%s: %d; the server saw it %d times, want %d", method, got, again, want)
			}
			if s := g.Status()[0]; s.Requests != conns+1 {
				t.Errorf("%+v", s)
			}
		}
	})
}

// A connection that was closed while it was idle is detected before anything is sent: even a POST succeeds.
func TestClosedUnused(t *testing.T) {
	for range 20 {
		closed := make(chan struct{})
		at := rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			if r.URL.Path == "/close" {
				conn.Close()
				close(closed)
			}
		})
		gw, g := gateway(t, upstream.Config{Servers: []string{at}})
		c := client(t)
		for _, path := range []string{"/close", "/"} {
			if got := do(t, c, request(t, "POST", gw.URL+path, "body")); got.status != 200 || got.body != "ok" {
				t.Errorf("%s: %+v", path, got)
			}
			<-closed
		}
		if s := g.Status()[0]; s.Failures != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// If every request fails, retries add at most 20 %.
func TestRetryBudget(t *testing.T) {
	bothWays(t, func(t *testing.T, way func(upstream.Config) upstream.Config) {
		const sent = 200
		var a, b atomic.Int64
		gw, _ := gateway(t, way(upstream.Config{Servers: []string{dying(t, &a, ""), dying(t, &b, "")}, OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: -1}, Retries: 5}))
		c := client(t)
		for range sent {
			if got := do(t, c, request(t, "GET", gw.URL, "")); got.status != 502 {
				t.Errorf("%+v", got)
			}
		}
		if all := a.Load() + b.Load(); all < sent+10 || all > sent+sent/5+10 {
			t.Errorf("%d requests became %d", sent, all)
		}
	})
}

// A server that reads requests on idle connections and closes them receives a request once more than the retries allow, however
// many connections there are.
func TestResendOnce(t *testing.T) {
	bothWays(t, func(t *testing.T, way func(upstream.Config) upstream.Config) {
		for _, c := range []struct{ retries, want int }{{-1, 2}, {1, 3}, {3, 5}} {
			const conns = 8
			var seen atomic.Int64
			var all sync.WaitGroup
			all.Add(conns)
			at := rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
				for {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					if seen.Add(1) > conns {
						return
					}
					all.Done()
					all.Wait() // each on another connection
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			})
			gw, _ := gateway(t, way(upstream.Config{Servers: []string{at}, Retries: c.retries}))
			var first sync.WaitGroup
			for range conns {
				first.Go(func() { do(t, client(t), request(t, "GET", gw.URL, "")) })
			}
			first.Wait()
			if got := do(t, client(t), request(t, "GET", gw.URL, "")).status; got != http.StatusBadGateway || seen.Load()-conns != int64(c.want) {
				t.Errorf("%+v: %d, and the server saw it %d times", c, got, seen.Load()-conns)
			}
		}
	})
}

// Retries do not depend on the protocol of the client.
func TestRetryOfBothClients(t *testing.T) {
	bothWays(t, func(t *testing.T, way func(upstream.Config) upstream.Config) {
		for proto, c := range bothClients(t) {
			for method, want := range map[string]int64{"GET": 3, "DELETE": 3, "POST": 1} {
				var seen atomic.Int64
				at := rawOrigin(t, func(_ net.Conn, in *bufio.Reader) {
					if _, err := headOf(in); err == nil {
						seen.Add(1)
					}
				})
				gw, _ := gateway(t, way(upstream.Config{Servers: []string{at}, Retries: 2}))
				if got := do(t, c, request(t, method, gw.URL, "")); got.status != http.StatusBadGateway || seen.Load() != want {
					t.Errorf("%s over %s: %d, and the server saw it %d times, want %d", method, proto, got.status, seen.Load(), want)
				}
			}
		}
	})
}
