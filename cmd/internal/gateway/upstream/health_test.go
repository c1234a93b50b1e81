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

// Servers are checked periodically; a number of consecutive results changes the state, and the first result changes it alone.
func TestHealth(t *testing.T) {
	var status atomic.Int64
	var asked atomic.Int64
	status.Store(500)
	var hang atomic.Bool
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" || r.Host != "health.example.com" {
			t.Errorf("request for %s at %s", r.URL.Path, r.Host)
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
			if s := g.Status(); s[0].State != want || s[1].State != upstream.StateDown { // no server listens at b
				t.Errorf("%+v, want %s", s, want)
			}
		}
		state(time.Second, upstream.StateDown)
		status.Store(302)
		state(11*time.Second, upstream.StateDown) // one successful check
		state(11*time.Second, upstream.StateUp)
		status.Store(404)
		state(11*time.Second, upstream.StateUp)
		status.Store(200) // a successful check in between resets the count
		state(11*time.Second, upstream.StateUp)
		hang.Store(true)
		state(26*time.Second, upstream.StateUp)
		state(16*time.Second, upstream.StateDown)
		if n := asked.Load(); n < 8 || n > 10 {
			t.Errorf("%d checks in 87 seconds", n)
		}
		cancel()
		<-done
	})
}

// A health check with status 101 has failed, and the next one follows: reading the response would block forever.
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
			t.Errorf("%d checks in 35 seconds, state %s", n, s[0].State)
		}
		cancel()
		<-done
	})
}

// Servers that fail every second health check keep their state, and requests are served. If no server is left, a request gets its
// response at once.
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
