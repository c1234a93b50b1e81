package httplimit_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

const corsOrigin = "https://app.example.com"

var corsConfig = httplimit.CORSConfig{AllowedOrigins: []string{corsOrigin, "https://*.example.org"}, AllowCredentials: true, ExposedHeaders: []string{"X-App"}}

// corsHandlers returns next behind each kind of middleware, each with a limit of 7.
func corsHandlers(l *sluice.Limiter, bare *sluice.Limiter, next http.Handler, opts ...httplimit.Option) map[string]http.Handler {
	set := ruleSet(rules.Config{
		Rules:    []rules.Rule{{Name: "api", Limits: limits(sluice.PerDay(7))}},
		DenyList: []rules.Match{where("path", "/forbidden")},
	})
	return map[string]http.Handler{
		"Middleware":      httplimit.Middleware(l, httplimit.ByHeader("X-User"), opts...)(next),
		"RulesMiddleware": httplimit.RulesMiddleware(bare, func() *rules.Set { return set }, opts...)(next),
	}
}

// corsKey is the key of requests without a user.
func corsKey() string { return sluice.Must(httplimit.ByHeader("X-User")(request())) }

func preflight(origin string) *http.Request {
	r := request(header("Origin", origin), header("Access-Control-Request-Method", "PUT"), header("Access-Control-Request-Headers", "x-user"))
	r.Method = http.MethodOptions
	return r
}

// wantCORS checks the CORS headers of a response to an origin.
func wantCORS(t *testing.T, name string, resp *http.Response, status int, origin string, allowed bool) {
	t.Helper()
	h := resp.Header
	want := []string(nil)
	if allowed {
		want = []string{origin}
	}
	if resp.StatusCode != status || !slices.Equal(h["Access-Control-Allow-Origin"], want) || h.Get("Vary") != "Origin" || (h.Get("Access-Control-Allow-Credentials") == "true") != allowed {
		t.Errorf("%s: status %d, want %d; %v", name, resp.StatusCode, status, h)
	}
	exposed := h["Access-Control-Expose-Headers"]
	if status == http.StatusNoContent || !allowed {
		return
	}
	if len(exposed) != 1 || strings.Count(exposed[0], "X-Ratelimit-Remaining") != 1 || !strings.HasSuffix(exposed[0], ", X-App") || !strings.HasPrefix(exposed[0], "Retry-After, ") {
		t.Errorf("%s: exposed %q", name, exposed)
	}
}

// Scripts of an allowed origin can read every response, denials included. 100 preflights do not change the remaining
// quota, and the same number of 10 requests is allowed as without them.
func TestCORS(t *testing.T) {
	clock := newClock()
	l, bare := limiter(clock.store(), rule("api", sluice.PerDay(7))), limiter(clock.store())
	reached := 0
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { reached++; fmt.Fprint(w, "here") })
	for name, h := range corsHandlers(l, bare, next, httplimit.CORS(corsConfig)) {
		reached = 0
		from := header("Origin", corsOrigin)
		wantCORS(t, name, serve(h, request(from)), 200, corsOrigin, true)
		for range 100 {
			resp := serve(h, preflight("https://a.example.org"))
			wantCORS(t, name, resp, 204, "https://a.example.org", true)
			if got := resp.Header; got.Get("Access-Control-Allow-Headers") != "x-user" || !strings.Contains(got.Get("Access-Control-Allow-Methods"), "PUT") || got.Get("Access-Control-Max-Age") != "600" {
				t.Fatalf("%s: %v", name, got)
			}
		}
		if name == "Middleware" {
			if d, err := l.Peek(t.Context(), corsKey()); err != nil || d.Remaining != 6 {
				t.Errorf("peek: %+v, %v", d, err)
			}
		}
		if resp := serve(h, preflight("https://evil.example")); resp.StatusCode != 204 || resp.Header["Access-Control-Allow-Methods"] != nil || resp.Header["Access-Control-Allow-Origin"] != nil {
			t.Errorf("%s: %d %v", name, resp.StatusCode, resp.Header)
		}
		if reached != 1 {
			t.Errorf("%s: preflights reached the handler: %d", name, reached)
		}
		for i := range 10 {
			status := 200
			if i >= 6 {
				status = 429
			}
			wantCORS(t, name, serve(h, request(from)), status, corsOrigin, true)
		}
		wantCORS(t, name, serve(h, request(header("Origin", "https://evil.example"))), 429, "https://evil.example", false)
		wantCORS(t, name, serve(h, request()), 429, "", false)
		options := request(from)
		options.Method = http.MethodOptions
		wantCORS(t, name, serve(h, options), 429, corsOrigin, true)
		if name == "RulesMiddleware" {
			wantCORS(t, name, serve(h, request(from, func(r *http.Request) { r.URL.Path = "/forbidden" })), 403, corsOrigin, true)
		} else {
			wantCORS(t, name, serve(h, request(from, header("X-User", "a", "b"))), 400, corsOrigin, true)
		}
	}
}

// The headers are set before anything else about the response is decided.
func TestCORSOtherResponses(t *testing.T) {
	from := header("Origin", corsOrigin)
	failing := storeFunc(func([]sluice.Take, []sluice.Decision) error { return errors.New("no") })
	closed := limiter(failing, rule("api", sluice.PerDay(1), failClosed))
	teapot := httplimit.DenialHandler(func(w http.ResponseWriter, _ *http.Request, _ *httplimit.Denial) { w.WriteHeader(http.StatusTeapot) })
	skip := httplimit.Skip(func(*http.Request) bool { return true })
	l := limiter(memstore.New(), rule("api", sluice.PerDay(1)))
	if d, err := l.Allow(t.Context(), corsKey()); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	for name, tt := range map[string]struct {
		l      *sluice.Limiter
		opts   []httplimit.Option
		status int
	}{
		"store unavailable": {closed, nil, 503},
		"DenialHandler":     {l, []httplimit.Option{teapot}, 418},
		"Skip":              {l, []httplimit.Option{skip}, 200},
		"Headers(0)":        {l, []httplimit.Option{httplimit.Headers(0)}, 429},
	} {
		opts := append(tt.opts, httplimit.CORS(corsConfig)) // the order of CORS and the options it depends on is irrelevant
		slices.Reverse(opts)
		h := httplimit.Middleware(tt.l, httplimit.ByHeader("X-User"), opts...)(ok)
		resp := serve(h, request(from))
		if got := resp.Header; resp.StatusCode != tt.status || got.Get("Access-Control-Allow-Origin") != corsOrigin || !strings.HasPrefix(got.Get("Access-Control-Expose-Headers"), "Retry-After") {
			t.Errorf("%s: %d %v", name, resp.StatusCode, got)
		}
	}
}

func TestCORSInvalid(t *testing.T) {
	for want, c := range map[string]httplimit.CORSConfig{
		"no origin is allowed":          {},
		"any website could act as its":  {AllowedOrigins: []string{"*"}, AllowCredentials: true},
		"has no scheme: write scheme":   {AllowedOrigins: []string{"app.example.com"}},
		`"get" is not a method`:         {AllowedOrigins: []string{"*"}, AllowedMethods: []string{"get"}},
		`"a b" is not the name`:         {AllowedOrigins: []string{"*"}, AllowedHeaders: []string{"a b"}},
		"the exposed header \"*\" as a": {AllowedOrigins: []string{corsOrigin}, ExposedHeaders: []string{"*"}, AllowCredentials: true},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "httplimit: CORS: ") || !strings.Contains(got, want) {
					t.Errorf("%+v: %s, want %s", c, got, want)
				}
			}()
			httplimit.CORS(c)
		}()
	}
}

// For random policies and origins: Allow-Origin is set only for allowed origins, never "*" with credentials, and Vary
// contains Origin whenever the response depends on it.
func TestCORSRandom(t *testing.T) {
	hosts := []string{"a.example", "b.a.example", "example", "xa.example", "a.example:8443", "localhost:3000"}
	r := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	host := func() string { return hosts[r.IntN(len(hosts))] }
	scheme := func() string { return []string{"http://", "https://"}[r.IntN(2)] }
	for range 300 {
		c := httplimit.CORSConfig{AllowCredentials: r.IntN(2) == 0}
		for range 1 + r.IntN(3) {
			c.AllowedOrigins = append(c.AllowedOrigins, scheme()+[]string{"", "*."}[r.IntN(2)]+host())
		}
		if !c.AllowCredentials && r.IntN(3) == 0 {
			c.AllowedOrigins = append(c.AllowedOrigins, "*")
		}
		all := slices.Contains(c.AllowedOrigins, "*")
		h := httplimit.Middleware(limiter(newClock().store(), rule("api", sluice.PerDay(1))), httplimit.ByIP(), httplimit.CORS(c))(ok)
		for i := range 4 {
			origin := []string{"null", scheme() + host(), scheme() + "x." + host()}[r.IntN(3)]
			allowed := slices.ContainsFunc(c.AllowedOrigins, func(text string) bool {
				before, after, below := strings.Cut(text, "*")
				return text == origin || below && strings.HasPrefix(origin, before) && strings.HasSuffix(origin, after)
			})
			req := request(header("Origin", origin))
			if i%2 == 1 {
				req = preflight(origin)
			}
			got, want := serve(h, req).Header, []string(nil)
			if allowed {
				want = []string{origin}
			}
			if all {
				want = []string{"*"}
			}
			if !slices.Equal(got["Access-Control-Allow-Origin"], want) || all && got["Access-Control-Allow-Credentials"] != nil ||
				!all && !slices.Contains(got["Vary"], "Origin") {
				t.Fatalf("%+v, %s: %v", c, origin, got)
			}
		}
	}
}
