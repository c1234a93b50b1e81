package httplimit_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
)

// get sends a request to a real server and returns the response and its body.
func get(t *testing.T, url string, edit ...func(*http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range edit {
		e(r)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func server(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestServerAllowedAndDenied(t *testing.T) {
	url := server(t, httplimit.Middleware(limiter(memstore.New(), rule("api", sluice.PerDay(3))), httplimit.ByIP())(ok))
	for i, want := range []string{"2", "1", "0"} {
		resp, body := get(t, url, header("X-Forwarded-For", strings.Repeat("9", i+1)+".1.1.1")) // not trusted
		if resp.StatusCode != 200 || body != "hello\n" || resp.Header.Get("X-Ratelimit-Remaining") != want {
			t.Errorf("request %d: status %d, body %q, headers %v", i, resp.StatusCode, body, resp.Header)
		}
	}
	resp, body := get(t, url+"/a?b=secret", header("X-Forwarded-For", "8.8.8.8"))
	var problem struct {
		Type, Title, Detail, Instance string
		Status                        int
		Violated                      []string `json:"violated-policies"`
		RetryAfterMS                  int64    `json:"retry_after_ms"`
	}
	if err := json.Unmarshal([]byte(body), &problem); err != nil {
		t.Fatalf("body %q: %v", body, err)
	}
	if resp.StatusCode != 429 || problem.Status != 429 || problem.Instance != "/a" || len(problem.Violated) != 1 ||
		problem.Violated[0] != "api" || problem.RetryAfterMS <= 0 || resp.Header.Get("Retry-After") != "28800" {
		t.Errorf("status %d, problem %+v, headers %v", resp.StatusCode, problem, resp.Header)
	}
	if resp.Header.Get("Access-Control-Expose-Headers") != "" {
		t.Error("headers are exposed without an Origin")
	}
}

func TestServerOtherOrigin(t *testing.T) {
	url := server(t, httplimit.Middleware(limiter(memstore.New(), rule("api", sluice.PerDay(1))), httplimit.ByIP())(ok))
	for _, want := range []int{200, 429} {
		resp, _ := get(t, url, header("Origin", "https://app.example"))
		exposed := resp.Header.Get("Access-Control-Expose-Headers")
		if resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
		for name := range resp.Header {
			if strings.Contains(name, "atelimit") && !strings.Contains(exposed+",", name+",") {
				t.Errorf("%s is not among the exposed %q", name, exposed)
			}
		}
	}
}

func TestServerSeveralRulesAndShadow(t *testing.T) {
	l := limiter(memstore.New(),
		rule("second", sluice.PerDay(5)), rule("trial", sluice.PerDay(2), shadow), rule("month", sluice.Per(100, 30*24*3600e9)))
	url := server(t, httplimit.Middleware(l, httplimit.ByIP())(ok))
	for i := range 7 {
		resp, _ := get(t, url)
		want := 200
		if i >= 5 {
			want = 429
		}
		if resp.StatusCode != want {
			t.Errorf("request %d: status %d, want %d", i, resp.StatusCode, want)
		}
		if p := resp.Header.Get("Ratelimit-Policy"); strings.Count(p, ";q=") != 2 || strings.Contains(p, "trial") {
			t.Errorf("request %d: policies %s, want those of second and month", i, p)
		}
		if l := resp.Header.Get("X-Ratelimit-Limit"); l != "5" { // trial, in shadow mode, has less left
			t.Errorf("request %d: X-Ratelimit-Limit %s", i, l)
		}
		limits := strings.Count(resp.Header.Get("Ratelimit"), ";r=")
		if want == 200 && limits != 2 || want == 429 && limits != 1 {
			t.Errorf("request %d: Ratelimit %s", i, resp.Header.Get("Ratelimit"))
		}
	}
}

func TestServerLogin(t *testing.T) {
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	l := limiter(memstore.New(), rule("logins", sluice.PerDay(3)))
	url := server(t, httplimit.Middleware(l, httplimit.ByBasicAuthUser(), failedLogins)(login))
	attempt := func(password string) int {
		resp, _ := get(t, url, func(r *http.Request) { r.SetBasicAuth("alice", password) })
		return resp.StatusCode
	}
	for i, step := range []struct {
		password string
		want     int
	}{
		{"right", 200},
		{"right", 200},
		{"right", 200},
		{"right", 200},
		{"wrong", 401},
		{"wrong", 401},
		{"right", 200},
		{"wrong", 401},
		{"wrong", 429},
		{"right", 429},
	} {
		if got := attempt(step.password); got != step.want {
			t.Errorf("attempt %d: status %d, want %d", i, got, step.want)
		}
	}
}

// TestServerConcurrent: exactly the limit of concurrent requests is admitted.
func TestServerConcurrent(t *testing.T) {
	l := limiter(memstore.New(), rule("a", sluice.PerDay(50)), rule("b", sluice.PerDay(60)))
	url := server(t, httplimit.Middleware(l, httplimit.Global())(ok))
	var allowed atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				if resp, _ := get(t, url); resp.StatusCode == 200 {
					allowed.Add(1)
				}
			}
		})
	}
	group.Wait()
	if allowed.Load() != 50 {
		t.Errorf("%d allowed, want 50", allowed.Load())
	}
}

// TestServerUpgrade hijacks a connection through the wrapped writer of ChargeIf.
func TestServerUpgrade(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := buf.ReadString('\n')
		_, _ = io.WriteString(conn, line)
	})
	l := limiter(memstore.New(), rule("ws", sluice.PerDay(3)))
	s := httptest.NewServer(httplimit.Middleware(l, httplimit.ByIP(), failedLogins)(echo))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nping\n")
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v, %v", resp, err)
	}
	if line, err := br.ReadString('\n'); line != "ping\n" {
		t.Errorf("echoed %q, %v", line, err)
	}
}

// TestServerUnixSocket runs behind a proxy that connects over a Unix socket.
func TestServerUnixSocket(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a client on Windows does not dial Unix sockets reliably")
	}
	keys := make(chan string, 1)
	byIP := httplimit.ByIP(httplimit.TrustUnixSockets())
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		key, _ := byIP(r)
		keys <- key
	}))
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	s.Listener.Close()
	s.Listener = listener
	s.Start()
	defer s.Close()
	conn, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 9.9.9.9, 1.2.3.4\r\n\r\n")
	if key := <-keys; key != "1.2.3.4" {
		t.Errorf("key %q, want the forwarded address", key)
	}
}

// TestServerHTTP2 checks that headers reach HTTP/2 clients too.
func TestServerHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(httplimit.Middleware(limiter(memstore.New(), rule("api", sluice.PerDay(1))), httplimit.ByIP(), failedLogins)(ok))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	resp, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.Header.Get("Ratelimit") != `"api";r=0;t=86400` {
		t.Errorf("%s, Ratelimit %s", resp.Proto, resp.Header.Get("Ratelimit"))
	}
}
