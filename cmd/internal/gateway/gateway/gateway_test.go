package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/forwardauthtest"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// setOf returns the rule set of a rule file.
func setOf(t testing.TB, text string) *rules.Set {
	t.Helper()
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "rules.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// limits returns the rule set of a rule file, and a limiter.
func limits(t testing.TB, text string) (set func() *rules.Set, limiter *sluice.Limiter) {
	t.Helper()
	limiter, err := sluice.NewWithRules(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	live := setOf(t, text)
	return func() *rules.Set { return live }, limiter
}

// group returns an upstream with one server.
func group(t testing.TB, url string) *upstream.Group {
	t.Helper()
	g, err := upstream.New(upstream.Config{Name: "app", Servers: []string{url}, Merge: quota.Merge})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func pattern(t testing.TB, text string) *match.Pattern {
	t.Helper()
	p, err := match.ParsePattern(text, false)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// start runs a gateway until the test ends and returns its address.
func start(t testing.TB, cfg gateway.Config) (address string) {
	t.Helper()
	if cfg.Rules == nil {
		cfg.Rules, cfg.Limiter = limits(t, "rules: []")
	}
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s, err := listen.New(listen.Config{
		Gateway:      listen.Gateway{Endpoint: listen.Endpoint{Address: "127.0.0.1:0"}, Handler: g, Wait: g.Wait},
		Log:          slog.New(slog.DiscardHandler),
		DrainTimeout: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx := t.Context()
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s.GatewayAddr().String()
}

// before starts a gateway with one route, for all requests, to an application.
func before(t testing.TB, app http.Handler, change func(*gateway.Config)) (address string) {
	t.Helper()
	s := httptest.NewServer(app)
	t.Cleanup(s.Close)
	cfg := gateway.Config{Routes: []gateway.Route{{Name: "all", Path: pattern(t, "/**"), Upstream: group(t, s.URL)}}}
	if change != nil {
		change(&cfg)
	}
	return start(t, cfg)
}

// answer is the response that a client received.
type answer struct {
	status int
	header http.Header
	body   string
}

// raw sends a request byte for byte on a new connection.
func raw(t testing.TB, address, text string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return answer{body: err.Error()}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Logf("%q: %v", text, err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// get sends a GET request with further header lines.
func get(t testing.TB, address, target string, lines ...string) answer {
	t.Helper()
	return raw(t, address, "GET "+target+" HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n"+strings.Join(append(lines, "", ""), "\r\n"))
}

// isProblem fails the test unless the response is a problem of the gateway with the status.
func (a answer) isProblem(t testing.TB, status int) {
	t.Helper()
	var p struct {
		Status    int
		Title     string
		RequestID string `json:"request_id"`
		Detail    string
		Instance  string
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.status != status || p.Status != status || p.Title != http.StatusText(status) ||
		a.header.Get("Content-Type") != "application/problem+json" || p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") {
		t.Errorf("got %+v, %v; want a problem with status %d", a, err, status)
	}
	// Like all other problems of the gateway: of routing, limits, upstreams and the queue. CONNECT has no path.
	if a.header.Get("Cache-Control") != "no-store" || !strings.HasPrefix(p.Instance, "/") && status != http.StatusMethodNotAllowed || p.Detail != "" && !strings.HasSuffix(p.Detail, ".") {
		t.Errorf("status %d: Cache-Control %q, instance %q, detail %q", status, a.header.Get("Cache-Control"), p.Instance, p.Detail)
	}
}

// Denials and rejections by rules have the form of the gateway's other problems.
func TestProblemsOfRules(t *testing.T) {
	address := before(t, echo, func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, "rules:\n- {name: a, match: {path: /a}, limit: 1/h}\n- {name: b, match: {path: /b}, per: 'header:X-User', limit: 1/h, on_missing: reject}\n")
	})
	get(t, address, "/a")
	get(t, address, "/a").isProblem(t, http.StatusTooManyRequests)
	get(t, address, "/b").isProblem(t, http.StatusForbidden)
	get(t, address, "/b", "X-User: x", "X-User: y").isProblem(t, http.StatusBadRequest)
}

// echo responds with the request line.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.RequestURI, b)
})

// The gateway resists the same spoofing attempts as the proxies of examples/, which use forward authentication.
func TestAsOtherProxies(t *testing.T) {
	set, limiter := limits(t, `
deny: [{path: /internal/**}, {query: {debug: {present: true}}}]
rules:
  - {name: posts-per-key, match: {method: POST, path: /posts}, per: header:X-Api-Key, limit: 10/h}
  - {name: reports-per-address, match: {path: /reports/**}, per: ip, limit: 10/h}
`)
	address := start(t, gateway.Config{
		Rules: set, Limiter: limiter,
		Routes: []gateway.Route{{Path: pattern(t, "/**"), Upstream: group(t, "http://"+forwardauthtest.App(t))}},
	})
	forwardauthtest.Proxy{Address: address}.Run(t)
}
