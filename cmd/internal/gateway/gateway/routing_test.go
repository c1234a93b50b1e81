package gateway_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/rules"
)

// told returns an upstream that responds with its name and the request.
func told(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", name, r.URL.RequestURI())
	})
}

// routed returns a gateway with routes of the form "host path".
func routed(t testing.TB, routes ...string) http.Handler {
	t.Helper()
	cfg := gateway.Config{Rules: func() *rules.Set { return setOf(t, "rules: []") }}
	for _, text := range routes {
		host, path, _ := strings.Cut(text, " ")
		cfg.Routes = append(cfg.Routes, gateway.Route{Name: text, Host: host, Path: pattern(t, path), Upstream: told(text)})
	}
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// ask returns the status and body of a handler's response to a request for a URL.
func ask(h http.Handler, url string) (int, string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, url, nil)
	r.URL.Scheme, r.URL.Host = "", "" // as in a server
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// Of the matching routes, those with the most specific host are used, and of these the one with the most specific path, in any
// order of the configuration.
func TestRoutes(t *testing.T) {
	routes := []string{
		" /**", " /v1/**", " /v1/users/{id}", " /v1/users/me", " /v1/users/m*", " /v1/users/**", " /v1/*/x", "api.example.com /v1/**",
		"api.example.com /only/{a}/{b}", "*.example.com /v1/**", "*.example.com /below", "*.a.example.com /v1/users/**", "[::1] /v1",
	}
	for url, want := range map[string]string{
		"http://h/":                                " /**",
		"http://h/v1":                              " /v1/**",
		"http://h/v1/":                             " /v1/**",
		"http://h/v1/users":                        " /v1/users/**",
		"http://h/v1/users/me":                     " /v1/users/me",
		"http://h/v1/users/me/":                    " /v1/users/me",
		"http://h/v1/users/mo":                     " /v1/users/m*",
		"http://h/v1/users/ada":                    " /v1/users/{id}",
		"http://h/v1/users/ada/x":                  " /v1/users/**",
		"http://h/v1/teams/x":                      " /v1/*/x",
		"http://h/v1/users/x":                      " /v1/users/{id}",
		"http://api.example.com/v1/users/me":       "api.example.com /v1/**",
		"http://API.Example.com.:8000/v1":          "api.example.com /v1/**",
		"http://api.example.com/only/1/2":          "api.example.com /only/{a}/{b}",
		"http://api.example.com/only/1":            " /**",
		"http://api.example.com/below":             "*.example.com /below",
		"http://www.example.com/v1/users/me":       "*.example.com /v1/**",
		"http://x.y.example.com/v1":                "*.example.com /v1/**",
		"http://x.a.example.com/v1/users/1":        "*.a.example.com /v1/users/**",
		"http://x.a.example.com/v1/other":          "*.example.com /v1/**",
		"http://a.example.com/v1/users/1":          "*.example.com /v1/**",
		"http://example.com/v1/users/me":           " /v1/users/me",
		"http://badexample.com/below":              " /**",
		"http://api.example.com.evil.test/v1/x":    " /v1/**",
		"http://[::1]:80/v1":                       "[::1] /v1",
		"http://h/v1/users/%6de":                   " /v1/users/me",
		"http://api.example.com/x/../only/1/2?a=b": "api.example.com /only/{a}/{b}",
	} {
		for turn := range routes { // in another order each time
			h := routed(t, append(append([]string{}, routes[turn:]...), routes[:turn]...)...)
			if status, got := ask(h, url); status != 200 || !strings.HasPrefix(got, want+" /") {
				t.Errorf("%s: %d %s, want %s", url, status, got, want)
			}
		}
	}
	h := routed(t, "api.example.com /v1/**", " /free")
	for _, url := range []string{"http://h/v1", "http://api.example.com/", "http://api.example.com/free/x", "http://h/.sluice/queue/1"} {
		if status, got := ask(h, url); status != http.StatusNotFound || !strings.Contains(got, `"title":"Not Found"`) {
			t.Errorf("%s: %d %s", url, status, got)
		}
	}
}

// Prefixes are stripped and added in whole segments, and a trailing slash is preserved.
func TestRewrite(t *testing.T) {
	for _, tt := range []struct{ path, strip, add, url, want string }{
		{"/v1/**", "/v1", "", "/v1/users", "/users"},
		{"/v1/**", "/v1", "", "/v1/users/", "/users/"},
		{"/v1/**", "/v1", "", "/v1", "/"},
		{"/v1/**", "/v1", "", "/v1/", "/"},
		{"/v1/**", "/v1", "", "/v1/v1/v1?a=%2f", "/v1/v1?a=%2f"},
		{"/v1/**", "/v1", "", "/x/..//v1/./a%20b", "/a%20b"},
		{"/v1/**", "/v1", "", "/v1/%2a/é", "/*/%C3%A9"},
		{"/v1/**", "", "/api", "/v1/users/", "/api/v1/users/"},
		{"/**", "", "/api", "/", "/api/"},
		{"/v1/**", "/v1", "/api", "/v1", "/api"},
		{"/v1/**", "/v1", "/api", "/v1/", "/api/"},
		{"/v1/**", "/v1", "/a b", "/v1/c", "/a%20b/c"},
		{"/v1/x/{id}", "/v1/x", "", "/v1/x/7?", "/7?"},
	} {
		g, err := gateway.New(gateway.Config{
			Rules:  func() *rules.Set { return setOf(t, "rules: []") },
			Routes: []gateway.Route{{Path: pattern(t, tt.path), StripPrefix: tt.strip, AddPrefix: tt.add, Upstream: told("up")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if status, got := ask(g, "http://h"+tt.url); status != 200 || got != "up "+tt.want {
			t.Errorf("%+v: %d %s", tt, status, got)
		}
	}
}

// FuzzRoutes compares the table with a search through all routes.
func FuzzRoutes(f *testing.F) {
	f.Add("/a/**\n/a/{b}\n/a/b\n/*/b", "/a/b")
	f.Add("/**\n/x*\n/x*y\n/*", "/xay")
	f.Fuzz(func(t *testing.T, patterns, path string) {
		canonical, err := match.CanonicalPath(path)
		if err != nil {
			return
		}
		var all []*match.Pattern
		table := new(match.Table)
		for text := range strings.Lines(patterns) {
			if p, err := match.ParsePattern(strings.TrimSuffix(text, "\n"), false); err == nil {
				table.Add(p, len(all))
				all = append(all, p)
			}
		}
		want := -1
		for i, p := range all {
			if p.Matches(canonical) && want < 0 {
				want = i
			}
			for _, q := range all { // the order is antisymmetric
				if p.Compare(q) != -q.Compare(p) {
					t.Errorf("%v and %v: %d and %d", p, q, p.Compare(q), q.Compare(p))
				}
				if p.Compare(q) == 0 && p.Matches(canonical) != q.Matches(canonical) {
					t.Errorf("%v and %v are equal, and only one matches %q", p, q, canonical)
				}
			}
		}
		if got := table.First(canonical); got != want {
			t.Errorf("%q fits %d, want %d of %q", canonical, got, want, patterns)
		}
	})
}
