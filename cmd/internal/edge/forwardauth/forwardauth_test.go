package forwardauth_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/forwardauth"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// newHandler returns a handler with the rules of a rule file.
func newHandler(t testing.TB, store sluice.Store, file string) http.Handler {
	t.Helper()
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "rules.yaml", Data: []byte(file)})
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := sluice.NewWithRules(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	return forwardauth.New(limiter, func() *rules.Set { return set }, time.Second)
}

// question returns the subrequest for a request. lines are further headers, after those of the proxy.
func question(method, uri string, lines ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/v1/auth?q=of+the+client", nil)
	r.RemoteAddr = "10.0.0.1:1234"
	for _, line := range append([]string{
		"X-Forwarded-Method: " + method, "X-Forwarded-Uri: " + uri, "X-Forwarded-Host: api.example.com",
	}, lines...) {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func ask(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t testing.TB, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Rules see all parts of the request of the client, and none of the subrequest.
func TestOriginal(t *testing.T) {
	for name, test := range map[string]struct {
		rule    string
		limited *http.Request
		other   *http.Request
	}{
		"method": {"match: {method: DELETE}", question("DELETE", "/x"), question("GET", "/x")},
		"path":   {"match: {path: /posts}", question("GET", "/posts"), question("GET", "/v1/auth")},
		"host": {
			"match: {host: api.example.com}",
			question("GET", "/"),
			ownHost(question("GET", "/"), "other.example.com"),
		},
		"host header": {
			"match: {header: {Host: api.example.com}}",
			question("GET", "/"),
			ownHost(question("GET", "/"), "other.example.com"),
		},
		"query":  {"match: {query: {q: a}}", question("GET", "/?q=a"), question("GET", "/?q=b")},
		"header": {"match: {header: {X-Plan: free}}", question("GET", "/", "X-Plan: free"), question("GET", "/", "X-Plan: pro")},
		"cookie": {"match: {cookie: {c: a}}", question("GET", "/", "Cookie: c=a"), question("GET", "/", "Cookie: c=b")},
		"address": {
			"match: {ip: 192.0.2.1}",
			question("GET", "/", "X-Forwarded-For: 10.9.9.9, 192.0.2.1"),
			question("GET", "/", "X-Forwarded-For: 192.0.2.1, 192.0.2.2"),
		},
		"headers of the proxy": {
			"match: {path: /a, header: {X-Forwarded-Uri: {present: false}}}",
			question("GET", "/a"), question("GET", "/b"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandler(t, memstore.New(), "client_ip: {trusted_proxies: [10.0.0.1]}\nrules:\n  - name: r\n    "+test.rule+"\n    limit: 1/h\n")
			for i, want := range []int{204, 429} {
				if got := ask(h, test.limited.Clone(t.Context())); got.StatusCode != want {
					t.Errorf("request %d: %d, want %d", i+1, got.StatusCode, want)
				}
			}
			got := ask(h, test.other)
			if got.StatusCode != 204 || got.Header.Get("Ratelimit") != "" {
				t.Errorf("another request: %d %v", got.StatusCode, got.Header)
			}
		})
	}
}

func ownHost(r *http.Request, host string) *http.Request {
	r.Host = "api.example.com" // the host of the subrequest is ignored
	r.Header.Set("X-Forwarded-Host", host)
	return r
}

// If the proxy does not set a header, or the client can set it too, the request is rejected with the reason.
func TestMisasked(t *testing.T) {
	h := newHandler(t, memstore.New(), "rules: [{name: r, limit: 100/h}]")
	without := func(name string) *http.Request {
		r := question("GET", "/")
		r.Header.Del(name)
		return r
	}
	for want, r := range map[string]*http.Request{
		"X-Forwarded-Method is missing: the proxy must set it": without("X-Forwarded-Method"),
		"X-Forwarded-Uri is missing":                           without("X-Forwarded-Uri"),
		"X-Forwarded-Host is missing":                          without("X-Forwarded-Host"),
		"X-Forwarded-Uri occurs 2 times":                       question("GET", "/", "X-Forwarded-Uri: /"),
		"X-Forwarded-Method occurs 2 times":                    question("GET", "/", "X-Forwarded-Method: GET"),
		"X-Forwarded-Host occurs 3 times":                      question("GET", "/", "X-Forwarded-Host: a", "X-Forwarded-Host: b"),
		`X-Forwarded-Method is \"GET, POST\"`:                  question("GET, POST", "/"),
		`X-Forwarded-Method is \"\"`:                           question("", "/"),
	} {
		for _, resp := range []*http.Response{ask(h, r.Clone(t.Context())), ask(forwardauth.ForNginx(h), r)} {
			if got := body(t, resp); resp.StatusCode != http.StatusInternalServerError || !strings.Contains(got, want) || resp.Header.Get("X-Sluice-Status") != "" {
				t.Errorf("%d %s, want %q", resp.StatusCode, got, want)
			}
		}
	}
	if got := ask(h, question("GET", "/")).Header.Get("X-Ratelimit-Remaining"); got != "99" {
		t.Errorf("%s remaining: rejected requests were counted", got)
	}
}

// A target that servers parse differently is rejected, even if no rule matches paths.
func TestTargets(t *testing.T) {
	h := newHandler(t, memstore.New(), "rules: [{name: r, limit: 100/h}]")
	for uri, want := range map[string]int{
		"/": 204, "/a?b=c": 204, "//a": 204, "/%61": 204, "/?#": 400, "": 400, "a": 400, "*": 400, "http://example.com/": 400,
		"//example.com/%zz": 400, "/a#b": 400, "/%": 400, "/a b": 400, "/\x7f": 400,
	} {
		if got := ask(h, question("GET", uri)); got.StatusCode != want {
			t.Errorf("%q: %d, want %d", uri, got.StatusCode, want)
		}
		if want == 400 {
			if got := ask(forwardauth.ForNginx(h), question("GET", uri)); got.StatusCode != 403 || got.Header.Get("X-Sluice-Status") != "400" {
				t.Errorf("%q: %d %v", uri, got.StatusCode, got.Header)
			}
		}
	}
}

// down is an unavailable store.
type down struct{}

var errDown = errors.New("down")

func (down) Apply(_ context.Context, _ []sluice.Take, _ []sluice.Decision) error { return errDown }

// For nginx every denial and rejection is a 403 that carries the actual status.
func TestNginx(t *testing.T) {
	const file = `
deny: [{path: /internal}]
rules:
  - {name: none, match: {path: /none}, limit: {rate: 0/h, algorithm: fixed_window}}
  - {name: key, match: {path: /key}, per: header:X-User, limit: 1/h}
  - {name: closed, match: {path: /closed}, limit: 1/h, on_failure: closed}
  - {name: open, match: {path: /open}, limit: 1/h, on_failure: open}
`
	working, broken := newHandler(t, memstore.New(), file), newHandler(t, down{}, file)
	for name, test := range map[string]struct {
		handler http.Handler
		uri     string
		headers []string
		status  string // X-Sluice-Status; empty: allowed
	}{
		"passes":      {working, "/", nil, ""},
		"open":        {broken, "/open", nil, ""},
		"denied":      {working, "/none", nil, "429"},
		"rejected":    {working, "/internal", nil, "403"},
		"twice":       {working, "/key", []string{"X-User: a", "X-User: b"}, "400"},
		"long":        {working, "/key", []string{"X-User: " + strings.Repeat("a", 10_000)}, "431"},
		"closed":      {broken, "/closed", nil, "503"},
		"a bad path":  {working, "/a%2fb", nil, "400"},
		"a long path": {working, "/internal/../none/" + strings.Repeat("../none/", 100), nil, "429"},
	} {
		t.Run(name, func(t *testing.T) {
			plain := ask(test.handler, question("GET", test.uri, test.headers...))
			mapped := ask(forwardauth.ForNginx(test.handler), question("GET", test.uri, test.headers...))
			if test.status == "" {
				if plain.StatusCode != 204 || mapped.StatusCode != 204 || mapped.Header.Get("X-Sluice-Status") != "" {
					t.Errorf("%d, and for nginx %d %v", plain.StatusCode, mapped.StatusCode, mapped.Header)
				}
				return
			}
			if got := http.StatusText(plain.StatusCode); got == "" || !strings.HasPrefix(plain.Status, test.status) {
				t.Errorf("for other proxies it is %s, want %s", plain.Status, test.status)
			}
			if mapped.StatusCode != 403 || mapped.Header.Get("X-Sluice-Status") != test.status {
				t.Errorf("%d, %v", mapped.StatusCode, mapped.Header)
			}
			for name := range plain.Header {
				if mapped.Header.Get(name) == "" {
					t.Errorf("%s is missing", name)
				}
			}
			var p struct{ Status json.Number }
			if err := json.Unmarshal([]byte(mapped.Header.Get("X-Sluice-Body")), &p); err != nil || p.Status.String() != test.status {
				t.Errorf("X-Sluice-Body is %q", mapped.Header.Get("X-Sluice-Body"))
			}
			if got := strings.TrimSpace(body(t, mapped)); got != mapped.Header.Get("X-Sluice-Body") {
				t.Errorf("the body is %q", got)
			}
		})
	}
}

// An internal error is a 500, also for nginx.
func TestFault(t *testing.T) {
	limiter, err := sluice.NewWithRules(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := forwardauth.New(limiter, func() *rules.Set { return nil }, time.Second)
	for _, h := range []http.Handler{h, forwardauth.ForNginx(h)} {
		if got := ask(h, question("GET", "/")); got.StatusCode != 500 || got.Header.Get("X-Sluice-Status") != "" {
			t.Errorf("%d %v", got.StatusCode, got.Header)
		}
	}
}

// Rules that charge by status charge every request, because the response of the application is unknown here.
func TestChargeByStatus(t *testing.T) {
	h := newHandler(t, memstore.New(), "rules: [{name: failed-logins, limit: 2/h, charge: {status: [401]}}]")
	for i, want := range []int{204, 204, 429} {
		if got := ask(h, question("POST", "/login")); got.StatusCode != want {
			t.Errorf("attempt %d: %d, want %d", i+1, got.StatusCode, want)
		}
	}
}

// Rules delay requests by at most maxDelay.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, memstore.New(), "rules: [{name: slow, limit: {rate: 2/s, burst: 10, algorithm: leaky_queue}}]")
		begin := time.Now()
		for range 2 {
			if got := ask(h, question("GET", "/")); got.StatusCode != 204 {
				t.Fatalf("got %d", got.StatusCode)
			}
		}
		if waited := time.Since(begin); waited < 500*time.Millisecond || waited > 600*time.Millisecond {
			t.Errorf("two requests took %v", waited)
		}
		statuses := make(chan int, 5)
		for range cap(statuses) {
			go func() { statuses <- ask(h, question("GET", "/")).StatusCode }()
		}
		count := map[int]int{}
		for range cap(statuses) {
			count[<-statuses]++
		}
		if count[204] != 2 || count[429] != 3 {
			t.Errorf("statuses %v, want two requests within a second", count)
		}
	})
}

// The body is left to the proxy.
func TestBodyIsNotRead(t *testing.T) {
	h := newHandler(t, memstore.New(), "rules: [{name: r, limit: 100/h}]")
	r := question("POST", "/")
	r.Body = io.NopCloser(unreadable{t})
	if got := ask(h, r); got.StatusCode != 204 {
		t.Errorf("got %d", got.StatusCode)
	}
}

type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

// No response may be cached.
func TestNoStore(t *testing.T) {
	h := newHandler(t, memstore.New(), "rules: [{name: r, limit: 1/h}]")
	for i, h := range []http.Handler{h, h, forwardauth.ForNginx(h)} {
		if got := ask(h, question("GET", "/")).Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("request %d: Cache-Control is %q", i+1, got)
		}
	}
}
