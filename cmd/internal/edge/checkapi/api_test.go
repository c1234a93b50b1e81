package checkapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/checkapi"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// someRules are the rules for the examples of the OpenAPI file.
var someRules = []string{`
deny:
  - ip: 203.0.113.0/24
allow:
  - header: {X-Probe: "1"}
rules:
  - name: posts-per-user
    match: {method: POST, path: /posts}
    per: ["header:X-User"]
    limit: 2/h
  - name: tokens-per-user
    match: {path: /tokens}
    per: ["header:X-User"]
    limit: {rate: 1000/day, algorithm: fixed_window}
`, `
domain: messaging
descriptors:
  - key: message_type
    rate_limit: {unit: day, requests_per_unit: 5}
`}

func parseRules(t testing.TB, texts ...string) *rules.Set {
	t.Helper()
	var sources []rulefile.File
	for i, text := range texts {
		sources = append(sources, rulefile.File{Name: string(rune('a'+i)) + ".yaml", Data: []byte(text)})
	}
	cfg, err := rulefile.Parse(rulefile.Options{}, sources...)
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// service is an API whose rules a test can change.
type service struct {
	*checkapi.API
	mux     *http.ServeMux
	limiter *sluice.Limiter
	rules   *rules.Set
}

type option func(*checkapi.Config)

func newService(t testing.TB, store sluice.Store, set *rules.Set, opts ...option) *service {
	t.Helper()
	limiter, err := sluice.NewWithRules(store, nil, sluice.WithStoreTimeout(time.Minute)) // so that a busy machine does not fail the test
	if err != nil {
		t.Fatal(err)
	}
	s := &service{mux: http.NewServeMux(), limiter: limiter, rules: set}
	now := func() *rules.Set { return s.rules }
	cfg := checkapi.Config{Limiter: limiter, Rules: now, Descriptors: rls.NewDecider(limiter, now, rls.Options{})}
	for _, o := range opts {
		o(&cfg)
	}
	s.API = checkapi.New(cfg)
	s.Register(s.mux, nil)
	return s
}

// withRules returns a service with a memory store.
func withRules(t testing.TB, texts ...string) *service {
	t.Helper()
	return newService(t, memstore.New(), parseRules(t, texts...))
}

// answered is a response, with its decoded body.
type answered struct {
	status int
	header http.Header
	body   string
	answer
	Results []answer

	Reservation string
	ExpiresAt   string `json:"expires_at"`

	Settled      bool
	Forgiven     int64
	UnknownRules []string `json:"unknown_rules"`

	Title, Detail string
}

type answer struct {
	Allowed  bool
	Status   int
	Limits   []limit
	DelayMS  int64 `json:"delay_ms"`
	Degraded *string
	Reason   string
}

type limit struct {
	Rule         string
	Allowed      bool
	Limit        int64
	Remaining    *int64
	RetryAfterMS int64  `json:"retry_after_ms"`
	ResetAfterMS *int64 `json:"reset_after_ms"`
	DelayMS      int64  `json:"delay_ms"`
	Source       string
	ShadowDenied bool `json:"shadow_denied"`
	ExceedsLimit bool `json:"exceeds_limit"`
	Refunded     *int64
}

// left returns the remaining quota of the first limit.
func (a *answered) left(t testing.TB) int64 {
	t.Helper()
	if len(a.Limits) == 0 || a.Limits[0].Remaining == nil {
		t.Fatalf("no remaining quota: %s", a.body)
	}
	return *a.Limits[0].Remaining
}

func post(path, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// do sends a request and validates the response against the OpenAPI file.
func (s *service) do(t testing.TB, r *http.Request) *answered {
	t.Helper()
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, r)
	return read(t, r, w.Result())
}

// read decodes a response and validates it against the OpenAPI file.
func read(t testing.TB, r *http.Request, resp *http.Response) *answered {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := &answered{status: resp.StatusCode, header: resp.Header, body: string(b)}
	theContract(t).holds(t, r.Method, r.URL.Path, resp.StatusCode, resp.Header, b)
	if bytes.HasPrefix(b, []byte("{")) {
		if err := json.Unmarshal(b, a); err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
	}
	return a
}

// ask sends a body.
func (s *service) ask(t testing.TB, path, body string) *answered {
	t.Helper()
	return s.do(t, post(path, body))
}

// expect sends a body and fails the test unless the response has the status.
func (s *service) expect(t testing.TB, status int, path, body string) *answered {
	t.Helper()
	a := s.ask(t, path, body)
	if a.status != status {
		t.Errorf("%s %s returns %d %s, want %d", path, body, a.status, a.body, status)
	}
	return a
}
