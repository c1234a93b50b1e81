package forwardauth_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/forwardauth"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// FuzzSameAsMiddleware: a request is decided as by RulesMiddleware, or rejected.
func FuzzSameAsMiddleware(f *testing.F) {
	for _, seed := range [][3]string{
		{"GET", "/", "example.com"},
		{"POST", "/internal", "example.com"},
		{"GET", "/x/../internal/a?q=1", "EXAMPLE.com:80"},
		{"GET", "/?secret=1", ""},
		{"GET", "/a#/../internal", "a"},
		{"OPTIONS", "*", "a"},
		{"GET", "http://b/internal", "a"},
		{"CONNECT", "a:80", "a:80"},
		{"get", "//internal", "a"},
		{"GET", "/%69nternal", "a"},
		{"GET", "/a;b", "internal.example"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "rules.yaml", Data: []byte(`
deny:
  - path: /internal/**
  - query: {secret: "1"}
  - host: internal.example
  - method: DELETE
`)})
	if err != nil {
		f.Fatal(err)
	}
	set, err := rules.New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	limiter, err := sluice.NewWithRules(memstore.New(), nil)
	if err != nil {
		f.Fatal(err)
	}
	always := func() *rules.Set { return set }
	middleware := httplimit.RulesMiddleware(limiter, always)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	asked := forwardauth.New(limiter, always, time.Second)
	f.Fuzz(func(t *testing.T, method, uri, host string) {
		line := method + " " + uri + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
		arrived, err := http.ReadRequest(bufio.NewReader(strings.NewReader(line)))
		if err != nil || arrived.Method != method || arrived.RequestURI != uri || len(arrived.Header) > 0 {
			return // not a valid request
		}
		q := httptest.NewRequest(http.MethodGet, "/v1/auth", nil)
		q.Header.Set("X-Forwarded-Method", method)
		q.Header.Set("X-Forwarded-Uri", uri)
		q.Header.Set("X-Forwarded-Host", arrived.Host)
		got, want := httptest.NewRecorder(), httptest.NewRecorder()
		asked.ServeHTTP(got, q)
		middleware.ServeHTTP(want, arrived)
		if got.Code != want.Code && got.Code != http.StatusBadRequest {
			t.Errorf("%q: status %d, RulesMiddleware %d", line, got.Code, want.Code)
		}
		if got.Code == http.StatusBadRequest && want.Code != http.StatusBadRequest && strings.HasPrefix(uri, "/") && !strings.Contains(uri, "#") {
			t.Errorf("%q is rejected: %s", line, got.Body)
		}
	})
}
