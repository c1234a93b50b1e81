package adminapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminapi"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

const testRules = `
attributes:
  token: {header: X-Token, secret: true}
rules:
  - {name: user, match: {path: /posts}, per: header:X-User, limit: [2/h, 5/day]}
  - {name: token, match: {path: /jobs}, per: token, limit: 3/h, shadow: true}
  - {name: pair, match: {path: "/users/{id}"}, per: ["path:id", ip], limit: 4/h, on_failure: closed}
  - {name: off, enabled: false, limit: 1/s}
`

const testDomain = `
domain: messaging
descriptors:
  - key: message_type
    rate_limit: {unit: hour, requests_per_unit: 2}
    descriptors:
      - key: to_number
        rate_limit: {unit: day, requests_per_unit: 7}
  - {key: free, rate_limit: {unlimited: true}}
`

func testSet(t testing.TB) *rules.Set {
	t.Helper()
	cfg, err := rulefile.Parse(rulefile.Options{},
		rulefile.File{Name: "rules.yaml", Data: []byte(testRules)}, rulefile.File{Name: "domain.yaml", Data: []byte(testDomain)})
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// log is a log whose lines a test can read.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// lines returns the lines logged since the last call.
func (l *log) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSuffix(l.b.String(), "\n")
	l.b.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// office is an admin API on a test server.
type office struct {
	t       testing.TB
	limiter *sluice.Limiter
	set     *rules.Set
	level   *slog.LevelVar
	log     *log
	server  *httptest.Server
}

func newOffice(t testing.TB, store sluice.Store, change ...func(*adminapi.Config)) *office {
	t.Helper()
	o := &office{t: t, set: testSet(t), level: new(slog.LevelVar), log: &log{}}
	var err error
	if o.limiter, err = sluice.NewWithRules(store, nil, sluice.WithStoreTimeout(time.Second)); err != nil {
		t.Fatal(err)
	}
	attempts, err := sluice.New(memstore.New(), "attempts", sluice.PerMinute(10))
	if err != nil {
		t.Fatal(err)
	}
	cfg := adminapi.Config{
		Limiter: o.limiter, Rules: func() *rules.Set { return o.set }, Level: o.level, Attempts: attempts,
		Log:    slog.New(slog.NewTextHandler(o.log, &slog.HandlerOptions{Level: o.level})),
		Digest: func() string { return "d1" },
	}
	for _, c := range change {
		c(&cfg)
	}
	o.server = httptest.NewServer(adminapi.New(cfg))
	t.Cleanup(o.server.Close)
	return o
}

// answer is a response of the API.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request. Headers are pairs of name and value; "Host" sets the host.
func (o *office) ask(method, path, body string, headers ...string) answer {
	o.t.Helper()
	return ask(o.t, o.server.Client(), o.server.URL, method, path, body, headers...)
}

func ask(t testing.TB, c *http.Client, base, method, path, body string, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := answer{resp.StatusCode, resp.Header, string(b)}
	keepsContract(t, method, path, body, got)
	return got
}

// post sends a POST request, fails the test unless the response has this status, and returns its decoded body.
func (o *office) post(status int, path, body string) map[string]any {
	o.t.Helper()
	return o.tree(status, o.ask(http.MethodPost, path, body))
}

func (o *office) get(status int, path string) map[string]any {
	o.t.Helper()
	return o.tree(status, o.ask(http.MethodGet, path, ""))
}

func (o *office) tree(status int, a answer) map[string]any {
	o.t.Helper()
	if a.status != status {
		o.t.Fatalf("%d, want %d: %s", a.status, status, a.body)
	}
	want := "application/json"
	if status >= 400 {
		want = "application/problem+json"
	}
	if got := a.header.Get("Content-Type"); got != want {
		o.t.Errorf("Content-Type is %s, want %s", got, want)
	}
	var tree map[string]any
	if err := json.Unmarshal([]byte(a.body), &tree); err != nil {
		o.t.Fatalf("%v: %s", err, a.body)
	}
	if status >= 400 && (tree["status"] != float64(status) || tree["title"] == "" || tree["detail"] == "" || tree["type"] != "about:blank") {
		o.t.Errorf("incomplete problem: %s", a.body)
	}
	return tree
}

// spend charges n to the buckets of a rule for a key.
func (o *office) spend(rule string, n int64, pairs ...string) {
	o.t.Helper()
	var parts []rules.KeyPart
	for i := 0; i < len(pairs); i += 2 {
		parts = append(parts, rules.KeyPart{Name: pairs[i], Value: pairs[i+1]})
	}
	buckets, err := o.set.Buckets(rule, parts)
	if err != nil {
		o.t.Fatal(err)
	}
	var takes []sluice.Take
	for _, b := range buckets {
		takes = append(takes, sluice.Take{Rule: b.Rule, Limit: b.Limit, Key: b.Key, Cost: n})
	}
	if _, err := o.limiter.Decide(o.t.Context(), takes, make([]sluice.Decision, len(takes))); err != nil {
		o.t.Fatal(err)
	}
}

// states formats buckets as "rule key remaining/limit source", with "denied" and "blocked" where they apply.
func states(tree map[string]any) string {
	var all []string
	for _, x := range tree["buckets"].([]any) {
		b := x.(map[string]any)
		key, _ := json.Marshal(b["key"])
		text := fmt.Sprintf("%s %s", b["rule"], key)
		if b["allowed"] != nil {
			text += fmt.Sprintf(" %v/%v %v", b["remaining"], b["limit"], b["source"])
		}
		if b["allowed"] == false {
			text += " denied"
		}
		if b["blocked_seconds"] != nil {
			text += " blocked"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func expect(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n     %s\nwant %s", what, got, want)
	}
}
