package upstream_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
)

// A server is asked again and again; so many answers in a row change what is believed of it, and the first does alone.
func TestHealth(t *testing.T) {
	var status atomic.Int64
	var asked atomic.Int64
	status.Store(500)
	var hang atomic.Bool
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" || r.Host != "health.example.com" {
			t.Errorf("asked for %s at %s", r.URL.Path, r.Host)
		}
		asked.Add(1)
		if hang.Load() {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(int(status.Load()))
	}
	cfg := upstream.Config{Servers: []string{"http://a:80", "http://b:80"}, HealthCheck: &upstream.HealthCheck{
		Path: "/healthz", Host: "health.example.com", Interval: 10 * time.Second, Timeout: 2 * time.Second, HealthyThreshold: 2, UnhealthyThreshold: 3,
	}}
	inBubble(t, cfg, map[string]http.HandlerFunc{"a:80": handler}, func(t *testing.T, _ *memory, g *upstream.Group) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { g.Run(ctx); close(done) }()
		state := func(after time.Duration, want string) {
			t.Helper()
			<-time.After(after)
			synctest.Wait()
			if s := g.Status(); s[0].State != want || s[1].State != upstream.StateDown { // nobody listens at b
				t.Errorf("%+v, want %s", s, want)
			}
		}
		state(time.Second, upstream.StateDown)
		status.Store(302)
		state(11*time.Second, upstream.StateDown) // one good answer
		state(11*time.Second, upstream.StateUp)
		status.Store(404)
		state(11*time.Second, upstream.StateUp)
		status.Store(200) // a good one in between: the row begins anew
		state(11*time.Second, upstream.StateUp)
		hang.Store(true)
		state(26*time.Second, upstream.StateUp)
		state(16*time.Second, upstream.StateDown)
		if n := asked.Load(); n < 8 || n > 10 {
			t.Errorf("asked %d times in 87 seconds", n)
		}
		cancel()
		<-done
	})
}

// A server that fails rests, longer each time, and one failure after a rest is enough for the next. At most half of a
// group rests.
func TestOutlierDetection(t *testing.T) {
	bubbleWays(t, func(t *testing.T, way func(upstream.Config) upstream.Config) {
		var fails atomic.Bool
		fails.Store(true)
		bad := func(w http.ResponseWriter, _ *http.Request) {
			if fails.Load() {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, "a")
		}
		good := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "b") }
		cfg := way(upstream.Config{Servers: []string{"http://a:80", "http://b:80"}, OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: 3, EjectionTime: 10 * time.Second}, Retries: -1})
		inBubble(t, cfg, map[string]http.HandlerFunc{"a:80": bad, "b:80": good}, func(t *testing.T, m *memory, g *upstream.Group) {
			c := m.client()
			defer c.CloseIdleConnections()
			round := func(n int) (failed int) {
				for range n {
					if do(t, c, request(t, "GET", "http://gw:80/", "")).status == 502 {
						failed++
					}
				}
				return failed
			}
			if n := round(5); n != 2 && n != 3 {
				t.Errorf("%d of 5 failed", n)
			}
			if n := round(10); n > 1 {
				t.Errorf("%d failed while it should rest", n)
			}
			s := g.Status()[0]
			if s.State != upstream.StateEjected || s.Failures != 3 || s.Ejections != 1 || s.EjectedFor != 10*time.Second {
				t.Errorf("%+v", s)
			}
			for i, ejectedFor := range []time.Duration{20 * time.Second, 40 * time.Second} {
				<-time.After(ejectedFor / 2)
				if n := round(10); n != 1 { // on trial
					t.Errorf("%d failed after rest %d", n, i)
				}
				if s := g.Status()[0]; s.EjectedFor != ejectedFor || s.Ejections != int64(i)+2 {
					t.Errorf("%+v", s)
				}
			}
			fails.Store(false)
			<-time.After(40 * time.Second)
			if n := round(10); n != 0 || g.Status()[0].State != upstream.StateUp {
				t.Errorf("%d failed, %+v", n, g.Status()[0])
			}
			fails.Store(true)
			if n := round(4); n != 2 { // it succeeded: a single failure is not enough any more
				t.Errorf("%d failed", n)
			}
			<-time.After(200 * time.Second) // well for long: its rests are forgotten
			round(2)
			if s := g.Status()[0]; s.EjectedFor != 10*time.Second {
				t.Errorf("%+v", s)
			}
		})
	})
}

func TestEjectsAtMostHalf(t *testing.T) {
	bad := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for n, most := range map[int]int{1: 0, 2: 1, 3: 1, 4: 2} {
		servers := named(n)
		handlers := map[string]http.HandlerFunc{}
		for _, s := range servers {
			handlers[s[len("http://"):]] = bad
		}
		cfg := upstream.Config{Servers: servers, OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: 1}, Retries: -1}
		inBubble(t, cfg, handlers, func(t *testing.T, m *memory, g *upstream.Group) {
			for range 10 * n {
				ask(t, m, request(t, "GET", "http://gw:80/", ""))
			}
			ejected := 0
			for _, s := range g.Status() {
				if s.State == upstream.StateEjected {
					ejected++
				}
			}
			if ejected != most {
				t.Errorf("%d of %d rest", ejected, n)
			}
		})
	}
}

// A health check that is answered with 101 has failed, and the next one follows: reading on would wait for ever.
func TestHealthSwitchesProtocols(t *testing.T) {
	var asked atomic.Int64
	handler := func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // until the other side closes it
	}
	cfg := upstream.Config{Servers: []string{"http://a:80"}, HealthCheck: &upstream.HealthCheck{Path: "/healthz", Interval: 10 * time.Second, Timeout: 2 * time.Second, HealthyThreshold: 2, UnhealthyThreshold: 3}}
	inBubble(t, cfg, map[string]http.HandlerFunc{"a:80": handler}, func(t *testing.T, _ *memory, g *upstream.Group) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { g.Run(ctx); close(done) }()
		<-time.After(35 * time.Second)
		synctest.Wait()
		if n, s := asked.Load(), g.Status(); n < 3 || s[0].State != upstream.StateDown {
			t.Errorf("asked %d times in 35 seconds, and it is %s", n, s[0].State)
		}
		cancel()
		<-done
	})
}

// Servers that fail every other health check stay as they are, and requests are served meanwhile. When none is left, a request
// is answered at once.
func TestHealthFlaps(t *testing.T) {
	var checks [2]atomic.Int64
	var gone atomic.Bool
	flaps := func(i int64) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/healthz" && (gone.Load() || (checks[i].Add(1)+i)%2 == 0) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
	}
	cfg := upstream.Config{Servers: []string{"http://a:80", "http://b:80"}, HealthCheck: &upstream.HealthCheck{Path: "/healthz", Interval: time.Second, Timeout: time.Second, HealthyThreshold: 2, UnhealthyThreshold: 3}}
	inBubble(t, cfg, map[string]http.HandlerFunc{"a:80": flaps(0), "b:80": flaps(1)}, func(t *testing.T, _ *memory, g *upstream.Group) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { g.Run(ctx); close(done) }()
		synctest.Wait()
		before := g.Status()
		ask := func() (status int, took time.Duration) {
			began, w := time.Now(), httptest.NewRecorder()
			g.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			return w.Code, time.Since(began)
		}
		for range 200 {
			<-time.After(time.Second)
			if status, _ := ask(); status != http.StatusOK {
				t.Fatalf("%d while health flaps: %+v", status, g.Status())
			}
		}
		if after := g.Status(); after[0].State != before[0].State || after[1].State != before[1].State {
			t.Errorf("%+v became %+v", before, after)
		}
		gone.Store(true)
		<-time.After(10 * time.Second)
		synctest.Wait()
		if s := g.Status(); s[0].State != upstream.StateDown || s[1].State != upstream.StateDown {
			t.Errorf("%+v", s)
		}
		for range 100 { // with no server left
			if status, took := ask(); took > 0 || status != http.StatusOK && status != http.StatusBadGateway && status != http.StatusServiceUnavailable {
				t.Fatalf("%d after %v", status, took)
			}
		}
		cancel()
		<-done
	})
}
