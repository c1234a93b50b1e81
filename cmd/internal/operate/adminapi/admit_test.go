package adminapi_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminapi"
	"github.com/sluiceproject/sluice/memstore"
)

const rightToken = "0123456789abcdef0123456789abcdef"

// writeToken writes a token file and returns its path.
func writeToken(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func withToken(t testing.TB) func(*adminapi.Config) {
	t.Helper()
	token, err := adminapi.ReadToken("admin tokens", writeToken(t, rightToken+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return func(c *adminapi.Config) { c.Token = token }
}

// everything is every call of the API with a valid body.
var everything = []struct{ method, path, body string }{
	{"GET", "/v1/status", ""},
	{"GET", "/v1/rules", ""},
	{"POST", "/v1/explain", `{"request":{"path":"/posts"}}`},
	{"POST", "/v1/peek", `{"rule":"user","key":{"header:X-User":"a"}}`},
	{"POST", "/v1/reset", `{"rule":"user","key":{"header:X-User":"a"}}`},
	{"POST", "/v1/reset/rule", `{"rule":"user"}`},
	{"POST", "/v1/block", `{"rule":"user","key":{"header:X-User":"a"},"duration":"1s"}`},
	{"POST", "/v1/suspend", `{"rules":["user"]}`},
	{"POST", "/v1/resume", `{"rules":["user"]}`},
	{"GET", "/v1/top", ""},
	{"GET", "/v1/keys", ""},
	{"GET", "/v1/queue", ""},
	{"GET", "/v1/queue/item?id=x", ""},
	{"POST", "/v1/queue/cancel", `{"id":"x"}`},
	{"POST", "/v1/queue/requeue", `{"id":"x"}`},
	{"POST", "/v1/reload", `{}`},
	{"PUT", "/v1/log-level", `{"level":"info"}`},
	{"GET", "/v1/watch?interval=x", ""}, // an invalid interval, for a response at once
	{"GET", "/metrics", ""},
	{"GET", "/debug/pprof/", ""},
	{"GET", "/debug/pprof/heap", ""},
	{"GET", "/debug/pprof/cmdline", ""},
	{"GET", "/nothing", ""},
	{"DELETE", "/v1/rules", ""},
}

// Without the token every request gets 401, including those for unknown paths.
func TestToken(t *testing.T) {
	o := newOffice(t, memstore.New(), withToken(t))
	for _, call := range everything {
		if got := o.ask(call.method, call.path, call.body, "X-Sluice-Admin", "1"); got.status != 401 || got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s %s without a token: %d %s", call.method, call.path, got.status, got.body)
		}
	}
	for _, header := range []string{"Bearer wrong", "Bearer ", "Bearer " + rightToken + "x", "Bearer " + rightToken[1:], "bearer " + rightToken, "Basic " + rightToken, rightToken} {
		if got := o.ask("GET", "/v1/status", "", "Authorization", header); got.status != 401 || strings.Contains(got.body, "0123") {
			t.Errorf("%s: %d %s", header, got.status, got.body)
		}
	}
	for _, call := range everything {
		if got := o.ask(call.method, call.path, call.body, "X-Sluice-Admin", "1", "Authorization", "Bearer "+rightToken); got.status == 401 || got.status == 403 {
			t.Errorf("%s %s with the token: %d %s", call.method, call.path, got.status, got.body)
		}
	}
	for _, line := range o.log.lines() {
		if strings.Contains(line, "0123") || !strings.Contains(line, "msg=audit") {
			t.Errorf("log line: %s", line)
		}
	}
}

// An address that sends wrong tokens is rejected for a while; other addresses are not.
func TestGuessing(t *testing.T) {
	o := newOffice(t, memstore.New(), withToken(t))
	handler := o.server.Config.Handler
	try := func(from, token string) int {
		r := httptest.NewRequest("GET", "http://localhost/v1/status", nil)
		r.RemoteAddr = from
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code == 429 && w.Header().Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
		return w.Code
	}
	for range 50 { // a missing token does not count as a wrong one
		if got := try("192.0.2.9:1", ""); got != 401 {
			t.Fatalf("without a token: %d", got)
		}
	}
	if got := try("192.0.2.9:1", rightToken); got != 200 {
		t.Fatalf("the right token after requests without one: %d", got)
	}
	codes := map[int]int{}
	for range 100 {
		codes[try("192.0.2.1:1", "wrong")]++
	}
	if codes[401] < 10 || codes[429] == 0 || codes[401]+codes[429] != 100 { // one more attempt is allowed every 6 s
		t.Errorf("statuses of 100 wrong tokens: %v", codes)
	}
	for from, want := range map[string]int{"192.0.2.1:99": 429, "192.0.2.2:1": 200, "[2001:db8::1]:1": 200, "@": 200} {
		if got := try(from, rightToken); got != want {
			t.Errorf("the right token from %s: %d, want %d", from, got, want)
		}
	}
	for i := range 20 { // addresses of one /64 count as one
		try("[2001:db8::"+string(rune('a'+i%6))+"]:1", "wrong")
	}
	if got := try("[2001:db8::1]:1", rightToken); got != 429 {
		t.Errorf("another address of the same /64: %d", got)
	}
	if lines := o.log.lines(); len(lines) == 0 || len(lines) > 100 {
		t.Errorf("%d lines are logged of 170 rejected requests", len(lines))
	}
}

func TestTokenFiles(t *testing.T) {
	for content, want := range map[string]string{
		"":                     "no token in the file: write one, such as the output of openssl rand -hex 32",
		"\n \n":                "no token in the file",
		"short\n":              "a token of 5 characters can be guessed: write at least 16",
		rightToken + "\nshort": "a token of 5 characters can be guessed",
	} {
		if _, err := adminapi.ReadToken("admin tokens", writeToken(t, content)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "short") {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
	if _, err := adminapi.ReadToken("admin tokens", filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file is accepted")
	}
	token, err := adminapi.ReadToken("admin tokens", writeToken(t, "\n  "+rightToken+"  \r\nanother-token-of-ours\n"))
	if err != nil {
		t.Fatal(err)
	}
	o := newOffice(t, memstore.New(), func(c *adminapi.Config) { c.Token = token })
	for text, want := range map[string]int{rightToken: 200, "another-token-of-ours": 200, "": 401} {
		if got := o.ask("GET", "/v1/status", "", "Authorization", "Bearer "+text); got.status != want {
			t.Errorf("%s: %d, want %d", text, got.status, want)
		}
	}
}

// A web page can neither use DNS rebinding to read from the API nor send a request that changes something.
func TestWebPages(t *testing.T) {
	o := newOffice(t, memstore.New(), func(c *adminapi.Config) { c.Hosts = []string{"ops.example.com"} })
	for host, want := range map[string]int{
		"127.0.0.1:6070": 200, "127.0.0.1": 200, "[::1]:6070": 200, "::1": 200, "localhost:6070": 200, "LOCALHOST": 200,
		"ops.example.com": 200, "OPS.example.com:6070": 200, "192.0.2.1:80": 200,
		"evil.example": 403, "evil.example:6070": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403, "evil.ops.example.com": 403, "[evil]": 403,
	} {
		for _, call := range everything[:2] {
			if got := o.ask(call.method, call.path, call.body, "Host", host); got.status != want {
				t.Errorf("%s with Host: %s: %d, want %d", call.path, host, got.status, want)
			}
		}
		if got := o.ask("POST", "/v1/suspend", `{"rules":["user"]}`, "Host", host); got.status != want {
			t.Errorf("suspend with Host: %s: %d, want %d", host, got.status, want)
		}
		o.limiter.Resume("user")
	}
	for _, headers := range [][]string{
		{"Content-Type", "text/plain"},
		{"Content-Type", "application/x-www-form-urlencoded"},
		{"Content-Type", "multipart/form-data; boundary=x"},
		{"Content-Type", "text/plain; application/json"},
		{"Content-Type", ""},
		{"Content-Type", "application/json", "Sec-Fetch-Site", "cross-site"},
		{"Content-Type", "application/json", "Origin", "http://evil.example"},
		{"X-Sluice-Admin", "1", "Origin", "null"},
	} {
		for _, call := range everything {
			if call.method == "GET" {
				continue
			}
			if got := o.ask(call.method, call.path, call.body, headers...); call.body != "" && got.status != 403 {
				t.Errorf("%s %s with %q: %d %s", call.method, call.path, headers, got.status, got.body)
			}
		}
	}
	if names := o.limiter.SuspendedRules(); names != nil {
		t.Errorf("%q are suspended", names)
	}
	for _, headers := range [][]string{{"Content-Type", "application/json; charset=utf-8"}, {"Content-Type", "", "X-Sluice-Admin", "1"}} {
		if got := o.ask("POST", "/v1/resume", `{"rules":["user"]}`, headers...); got.status != 200 {
			t.Errorf("with %q: %d %s", headers, got.status, got.body)
		}
	}
	if got := o.ask("OPTIONS", "/v1/suspend", "", "Origin", "http://evil.example", "Access-Control-Request-Method", "POST"); got.status < 400 || got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a CORS preflight gets %d %v", got.status, got.header)
	}
}

// On a Unix socket every Host header is allowed, because browsers cannot connect to it and programs send any name.
func TestUnixSocket(t *testing.T) {
	o := newOffice(t, memstore.New())
	directory, err := os.MkdirTemp("", "sluice-admin") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	path := filepath.Join(directory, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: o.server.Config.Handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	t.Cleanup(c.CloseIdleConnections)
	if got := ask(t, c, "http://sluice", "POST", "/v1/resume", `{"rules":["user"]}`); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if lines := o.log.lines(); len(lines) != 1 || !strings.Contains(lines[0], `principal="unix socket"`) {
		t.Errorf("the log has %q", lines)
	}
}

// Profiles require a token, and the command line is never served.
func TestProfiles(t *testing.T) {
	for path, want := range map[string]int{"": 403, "heap": 403, "cmdline": 403, "profile?seconds=1": 403} {
		if got := newOffice(t, memstore.New()).ask("GET", "/debug/pprof/"+path, ""); got.status != want {
			t.Errorf("%s without tokens: %d", path, got.status)
		}
	}
	o := newOffice(t, memstore.New(), withToken(t))
	for path, want := range map[string]int{
		"": 200, "heap": 200, "goroutine?debug=1": 200, "symbol": 200, "trace?seconds=1": 200, "profile?seconds=1": 200,
		"cmdline": 404, "nothing": 404, "profile?seconds=61": 400, "profile?seconds=0": 400, "heap?seconds=x": 400,
	} {
		got := o.ask("GET", "/debug/pprof/"+path, "", "Authorization", "Bearer "+rightToken)
		if got.status != want || strings.Contains(got.body, os.Args[0]+"\x00") {
			t.Errorf("%s: %d, want %d", path, got.status, want)
		}
	}
	if got := o.ask("POST", "/debug/pprof/symbol", "x", "Authorization", "Bearer "+rightToken); got.status != 405 {
		t.Errorf("POST: %d", got.status)
	}
}

// Metrics can be served without a token, and no other path is.
func TestPublicMetrics(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("m 1\n")) })
	for public, want := range map[bool]int{true: 200, false: 401} {
		o := newOffice(t, memstore.New(), withToken(t), func(c *adminapi.Config) { c.Metrics, c.MetricsPublic = metrics, public })
		for path, want := range map[string]int{"/metrics": want, "/metrics/": 401, "//metrics": 401, "/v1/status": 401} {
			if got := o.ask("GET", path, ""); got.status != want {
				t.Errorf("public %v: %s returns %d, want %d", public, path, got.status, want)
			}
		}
	}
	o := newOffice(t, memstore.New(), func(c *adminapi.Config) { c.Metrics = metrics })
	if got := o.ask("GET", "/metrics", ""); got.status != 200 || got.body != "m 1\n" {
		t.Errorf("%d %s", got.status, got.body)
	}
}
