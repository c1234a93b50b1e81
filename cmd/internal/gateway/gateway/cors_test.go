package gateway_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/internal/cors"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

const ours, theirs = "https://app.example.com", "https://other.example.com"

// corsApp is an application that sets CORS headers.
var corsApp = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Allow-Methods", "QUERY")
	w.Header().Set("Access-Control-Expose-Headers", "X-App")
	w.Header().Set("Vary", "Accept")
	fmt.Fprint(w, r.Method)
})

// wantCORS checks the CORS headers of a response.
func (a answer) wantCORS(t *testing.T, name, origin string, status int) {
	t.Helper()
	got, exposed := a.header["Access-Control-Allow-Origin"], strings.Join(a.header["Access-Control-Expose-Headers"], ", ")
	want := []string(nil)
	if origin == ours {
		want = []string{ours}
		for _, header := range []string{"Retry-After", "X-Ratelimit-Remaining", "Ratelimit", "Ratelimit-Policy", "Location", "X-Request-Id", "X-Mine"} {
			if !slices.Contains(strings.Split(exposed, ", "), header) {
				t.Errorf("%s: %s is not exposed: %q", name, header, exposed)
			}
		}
	} else if exposed != "" || a.header["Access-Control-Allow-Credentials"] != nil {
		t.Errorf("%s: %v", name, a.header)
	}
	vary := strings.Split(strings.Join(a.header["Vary"], ", "), ", ")
	if a.status != status || !slices.Equal(got, want) || !slices.Contains(vary, "Origin") || strings.Count(strings.Join(vary, ","), "Origin") != 1 {
		t.Errorf("%s, origin %s: status %d, want %d; Allow-Origin %q, Vary %q", name, origin, a.status, status, got, vary)
	}
}

func withCORS(r *gateway.Route) {
	r.CORS = cors.Config{AllowedOrigins: []string{ours}, ExposedHeaders: []string{"X-Mine"}, MaxAge: time.Minute}
}

// corsAuthn accepts no request.
func corsAuthn(t *testing.T) *authn.Chain {
	t.Helper()
	keys, err := authn.NewKeys(authn.KeysConfig{Header: "X-Key"})
	if err != nil {
		t.Fatal(err)
	}
	return authn.NewChain(authn.ChainConfig{Methods: []authn.Method{keys}})
}

// corsFront starts a gateway that responds to each path with another status.
func corsFront(t *testing.T) (address string) {
	t.Helper()
	q := newQueue(t, func(*queue.Config) {})
	return before(t, corsApp, func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, `
client_ip: {trusted_proxies: [127.0.0.1]}
deny: [{path: /forbidden}]
rules:
  - {name: limited, match: {path: [/limited, /plain]}, per: header:X-Who, limit: 1/h}
  - {name: queued, match: {path: /queued}, per: header:X-Who, limit: 1/h, on_limit: queue}
`)
		c.Queue, c.InternalHandler = q, q.Handler()
		c.Deny = match.NewAddrSet([]netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")})
		all := c.Routes[0]
		withCORS(&c.Routes[0])
		c.Routes[0].MaxBody = 10
		add := func(path string, change func(*gateway.Route)) {
			r := all
			r.Path = pattern(t, path)
			change(&r)
			c.Routes = append(c.Routes, r)
		}
		add("/plain", func(*gateway.Route) {})
		add("/secret", func(r *gateway.Route) { withCORS(r); r.Authn = corsAuthn(t) })
		add("/down", func(r *gateway.Route) { withCORS(r); r.Upstream = group(t, "http://"+tcptest.FreeAddress(t)) })
		add("/late", func(r *gateway.Route) {
			withCORS(r)
			s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
			t.Cleanup(s.Close)
			r.Timeout, r.Upstream = time.Millisecond, group(t, s.URL)
		})
	})
}

// Scripts of an allowed origin can read every response of a route with CORS, including those of Sluice itself; scripts of
// other origins can read none. The headers of the upstream are replaced.
func TestCORSResponses(t *testing.T) {
	address := corsFront(t)
	for i, origin := range []string{ours, theirs, "null", ours + ".evil.example"} {
		who, line := fmt.Sprintf("X-Who: %d", i), "Origin: "+origin
		for _, step := range []struct {
			name, path string
			status     int
			lines      []string
		}{
			{name: "upstream", path: "/", status: 200},
			{name: "Connection names Origin", path: "/", status: 200, lines: []string{"Connection: Origin"}},
			{name: "allowed", path: "/limited", status: 200},
			{name: "denied", path: "/limited", status: 429},
			{name: "unauthenticated", path: "/secret", status: 401},
			{name: "forbidden by a rule", path: "/forbidden", status: 403},
			{name: "address", path: "/", status: 403, lines: []string{"X-Forwarded-For: 192.0.2.1"}},
			{name: "body", path: "/", status: 413, lines: []string{"Content-Length: 11"}},
			{name: "unreachable", path: "/down", status: 502},
			{name: "late", path: "/late", status: 504},
			{name: "queued, allowed", path: "/queued", status: 200},
			{name: "queued", path: "/queued", status: 202},
		} {
			a := get(t, address, step.path, append(step.lines, line, who)...)
			a.wantCORS(t, step.name, origin, step.status)
			if step.name == "upstream" && (a.header["Access-Control-Allow-Methods"] != nil || a.header.Get("Vary") != "Accept") {
				t.Errorf("%v", a.header)
			}
			if at := a.header.Get("Location"); at != "" {
				get(t, address, at, line).wantCORS(t, "status of a queued request", origin, 200)
				raw(t, address, "OPTIONS "+at+" HTTP/1.1\r\nHost: a\r\n"+line+"\r\nAccess-Control-Request-Method: DELETE\r\n\r\n").
					wantPreflight(t, "status of a queued request", origin)
			}
		}
	}
	for _, path := range []string{"/%2f", "/.sluice"} {
		if a := get(t, address, path, "Origin: "+theirs); a.status < 400 || a.header["Access-Control-Allow-Origin"] != nil {
			t.Errorf("%s: %+v", path, a)
		}
	}
}

func (a answer) wantPreflight(t *testing.T, name, origin string) {
	t.Helper()
	want := http.Header{
		"Vary": {"Origin", "Access-Control-Request-Headers"}, "Access-Control-Allow-Origin": {ours},
		"Access-Control-Allow-Methods": {"GET, HEAD, POST, PUT, PATCH, DELETE"}, "Access-Control-Max-Age": {"60"},
	}
	if origin != ours {
		want = http.Header{"Vary": want["Vary"]}
	}
	for header := range a.header {
		if want[header] == nil && header != "Date" && header != "X-Request-Id" && header != "Connection" {
			t.Errorf("%s, preflight of %s: there is %s: %q", name, origin, header, a.header[header])
		}
	}
	for header, lines := range want {
		if !slices.Equal(a.header[header], lines) {
			t.Errorf("%s, preflight of %s: %s is %q, want %q", name, origin, header, a.header[header], lines)
		}
	}
	if a.status != http.StatusNoContent || a.body != "" {
		t.Errorf("%s, preflight of %s: %+v", name, origin, a)
	}
}

// The gateway responds to preflights of a route with CORS without authentication and rules, and does not count them. Other
// OPTIONS requests are handled like all requests.
func TestCORSPreflights(t *testing.T) {
	address := corsFront(t)
	preflight := func(path, origin string) answer {
		return raw(t, address, "OPTIONS "+path+" HTTP/1.1\r\nHost: a\r\nOrigin: "+origin+"\r\nAccess-Control-Request-Method: PUT\r\n\r\n")
	}
	for range 3 {
		for _, path := range []string{"/", "/limited", "/secret", "/forbidden", "/down", "/queued"} {
			for _, origin := range []string{ours, theirs} {
				preflight(path, origin).wantPreflight(t, path, origin)
			}
		}
	}
	options := func(path string, lines ...string) answer {
		return raw(t, address, "OPTIONS "+path+" HTTP/1.1\r\nHost: a\r\n"+strings.Join(append(lines, "", ""), "\r\n"))
	}
	for i, lines := range [][]string{{"X-Who: a"}, {"X-Who: b", "Origin: " + ours}, {"X-Who: c", "Access-Control-Request-Method: PUT"}} {
		if a := options("/limited", lines...); a.status != 200 || a.body != "OPTIONS" {
			t.Errorf("%d: %+v", i, a)
		}
		if a := options("/limited", lines...); a.status != 429 {
			t.Errorf("%d: it is not counted: %+v", i, a)
		}
	}
	// Without CORS they are counted and forwarded.
	if a := preflight("/plain", ours); a.status != 200 || a.body != "OPTIONS" || a.header.Get("Access-Control-Allow-Methods") != "QUERY" {
		t.Errorf("%+v", a)
	}
	if a := preflight("/plain", ours); a.status != 429 || a.header["Access-Control-Allow-Origin"] != nil || a.header["Vary"] != nil {
		t.Errorf("%+v", a)
	}
}

// CORS headers of an upstream are unchanged if the route has no CORS, and quota headers are exposed in addition.
func TestWithoutCORS(t *testing.T) {
	a := get(t, corsFront(t), "/plain", "Origin: "+theirs)
	h := a.header
	if h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Vary") != "Accept" || h.Get("Access-Control-Allow-Methods") != "QUERY" || h.Values("Access-Control-Expose-Headers")[1] != "X-App" {
		t.Errorf("%+v", a)
	}
}

// Preflights are bounded like other requests: by the number in flight, by that of an address, and by load shedding. Scripts can
// read these responses.
func TestCORSOverload(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*testing.T, *gateway.Config)
		status int
	}{
		"in flight":  {func(_ *testing.T, c *gateway.Config) { c.MaxRequests = 1 }, 503},
		"of address": {func(_ *testing.T, c *gateway.Config) { c.MaxAddressRequests = 1 }, 429},
		"shed": {func(t *testing.T, c *gateway.Config) {
			c.Rules, c.Limiter = limits(t, "rules: []\nload_shedding: [{name: app, concurrency: {min: 1, max: 1}}]")
			c.Shed = httplimit.NewShedder(c.Rules).Middleware
		}, 503},
	} {
		t.Run(name, func(t *testing.T) {
			came, ends := make(chan struct{}), make(chan struct{})
			address := before(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(came); <-ends }), func(c *gateway.Config) {
				withCORS(&c.Routes[0])
				tt.change(t, c)
			})
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			defer close(ends)
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			<-came
			for _, method := range []string{"GET", "OPTIONS"} {
				for _, origin := range []string{ours, theirs} {
					a := raw(t, address, method+" / HTTP/1.1\r\nHost: a\r\nAccess-Control-Request-Method: PUT\r\nOrigin: "+origin+"\r\n\r\n")
					a.wantCORS(t, method, origin, tt.status)
				}
			}
		})
	}
}
