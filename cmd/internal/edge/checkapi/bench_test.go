package checkapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/allocs"
)

// discard is a response writer that does not allocate.
type discard struct {
	h      http.Header
	status int
	n      int
}

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(b []byte) (int, error) { d.n += len(b); return len(b), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

// again is a body that can be read repeatedly.
type again struct{ strings.Reader }

func (*again) Close() error { return nil }

// asked are common requests, with their maximum number of allocations and the status of the response.
var asked = []struct {
	name, body string
	status     int
	most       float64 // a string and an array for the headers; if denied, the reason too; a buffer for the digest of a secret
}{
	{"attributes", `{"attributes":{"method":"POST","path":"/plenty","ip":"192.0.2.1","headers":{"X-User":"ada"}},"cost":1}`, 200, 2},
	{"three rules", `{"attributes":{"method":"POST","path":"/three","ip":"192.0.2.1","headers":{"X-User":"ada"}}}`, 200, 2},
	{"descriptors", `{"domain":"d","descriptors":[[{"key":"k","value":"ada"}]]}`, 200, 2},
	{"ten at once", `{"checks":` + repeated(`{"attributes":{"method":"POST","path":"/plenty","headers":{"X-User":"ada"}}}`, 10) + `}`, 200, 0},
	{"unlimited", `{"attributes":{"path":"/none"}}`, 200, 0},
	{"escapes", `{"attributes":{"method":"POST","path":"/plenty","headers":{"X-User":"ad\u0061"}}}`, 200, 2},
	{"denied", `{"attributes":{"path":"/spent"}}`, 429, 5},
}

const plentyRules = `
rules:
  - {name: plenty, match: {path: /plenty}, per: ["header:X-User"], limit: 1000000/s}
  - {name: second, match: {path: /three}, per: ["header:X-User"], limit: 1000000/s}
  - {name: minute, match: {path: /three}, per: [ip], limit: {rate: 100000000/min, algorithm: fixed_window}}
  - {name: day, match: {path: /three}, limit: {rate: 100000000/day, algorithm: sliding_window_counter}}
  - {name: spent, match: {path: /spent}, limit: {rate: 0/h, algorithm: fixed_window}}
`

func plentyService(t testing.TB) *service {
	return withRules(t, plentyRules, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 1000000}}]")
}

// repeat returns a function that calls the handler with the same request.
func repeat(t testing.TB, s *service, path, body string) (*discard, func()) {
	t.Helper()
	content := &again{}
	r := httptest.NewRequest(http.MethodPost, path, http.NoBody)
	r.Header.Set("Content-Type", "application/json")
	r.Body, r.ContentLength = content, int64(len(body))
	w := &discard{h: http.Header{}}
	return w, func() {
		clear(w.h)
		content.Reset(body)
		s.mux.ServeHTTP(w, r)
	}
}

// A check allocates only for its headers.
func TestAllocations(t *testing.T) {
	s := plentyService(t)
	for _, a := range asked {
		w, ask := repeat(t, s, "/v1/check", a.body)
		if n := allocs.Of(ask); n > a.most || w.status != a.status {
			t.Errorf("%s: %v allocations, want at most %v; status %d", a.name, n, a.most, w.status)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	s := plentyService(b)
	for _, a := range asked {
		b.Run(a.name, func(b *testing.B) {
			w, ask := repeat(b, s, "/v1/check", a.body)
			if ask(); w.status != a.status {
				b.Fatalf("status %d", w.status)
			}
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
			if w.status != a.status {
				b.Fatalf("status %d", w.status)
			}
		})
	}
}

func BenchmarkReserve(b *testing.B) {
	s := plentyService(b)
	w, ask := repeat(b, s, "/v1/reserve", asked[0].body)
	b.ReportAllocs()
	for b.Loop() {
		ask()
	}
	if w.status != 200 {
		b.Fatalf("status %d", w.status)
	}
}
