package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
)

// nowhere is a response writer that discards the response.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}

// BenchmarkHandlers measures the overhead of the gateway per request, with one rule and without: no network, and an upstream
// that does nothing.
func BenchmarkHandlers(b *testing.B) {
	for name, text := range map[string]string{"none": "rules: []", "one rule": "rules: [{name: r, match: {path: /v1/**}, per: ip, limit: 10000000/s}]"} {
		b.Run(name, func(b *testing.B) {
			set, limiter := limits(b, text)
			served := 0
			g, err := gateway.New(gateway.Config{Rules: set, Limiter: limiter, Routes: []gateway.Route{{
				Path: pattern(b, "/v1/**"), Timeout: 1e9, MaxBody: 1000,
				Upstream: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					served++
					w.WriteHeader(http.StatusOK)
				}),
			}}})
			if err != nil {
				b.Fatal(err)
			}
			r := httptest.NewRequest("GET", "/v1/users/7?a=b", nil)
			asked := 0
			for b.Loop() {
				r.URL = &url.URL{Path: "/v1/users/7", RawQuery: "a=b"}
				r.Header = http.Header{"Accept": {"*/*"}, "User-Agent": {"bench"}}
				g.ServeHTTP(&nowhere{make(http.Header)}, r)
				asked++
			}
			if served != asked {
				b.Errorf("%d of %d were served", served, asked)
			}
		})
	}
}
