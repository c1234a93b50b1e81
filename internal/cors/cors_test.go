package cors_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/cors"
)

func policy(t *testing.T, c cors.Config) *cors.Policy {
	t.Helper()
	p, err := cors.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func from(origin string, lines ...string) http.Header {
	h := http.Header{"Origin": {origin}}
	for i := 0; i < len(lines); i += 2 {
		h.Add(lines[i], lines[i+1])
	}
	return h
}

func TestOrigins(t *testing.T) {
	p := policy(t, cors.Config{AllowedOrigins: []string{
		"https://App.example.com", "http://localhost:3000", "https://*.example.org", "http://*.dev.example:8080", "http://[::1]:5173", "capacitor://localhost",
	}})
	for origin, want := range map[string]bool{
		"https://app.example.com":              true,
		"http://app.example.com":               false,
		"https://app.example.com:8443":         false,
		"https://app.example.com.evil.example": false,
		"https://evilapp.example.com":          false,
		"http://localhost:3000":                true,
		"http://localhost:3001":                false,
		"http://[::1]:5173":                    true,
		"capacitor://localhost":                true,
		"https://a.example.org":                true,
		"https://a.b.example.org":              true,
		"https://example.org":                  false,
		"https://.example.org":                 false,
		"https://a..example.org":               false,
		"https://evilexample.org":              false,
		"https://a.example.org:8443":           false,
		"http://a.example.org":                 false,
		"https://evil.example/.example.org":    false,
		"https://evil.example#.example.org":    false,
		"https://user@a.example.org":           false,
		"http://a.dev.example:8080":            true,
		"http://a.dev.example":                 false,
		"null":                                 false,
		"":                                     false,
		"*":                                    false,
		"https://*.example.org":                false,
	} {
		if got := p.AllowOrigin(from(origin)) != nil; got != want {
			t.Errorf("%q: allowed %v, want %v", origin, got, want)
		}
	}
	if p.AllowOrigin(http.Header{}) != nil || p.AllowOrigin(http.Header{"Origin": {"http://localhost:3000", "http://localhost:3000"}}) != nil {
		t.Error("no origin, or two, are allowed")
	}
}

func TestInvalid(t *testing.T) {
	one := []string{"https://app.example.com"}
	for want, c := range map[string]cors.Config{
		"no origin is allowed: list the origins":                             {},
		"any website could act as its visitors. List the origins":            {AllowedOrigins: []string{"*"}, AllowCredentials: true},
		"browsers treat the exposed header \"*\" as a literal":               {AllowedOrigins: one, ExposedHeaders: []string{"*"}, AllowCredentials: true},
		`origin "null" is that of sandboxed frames`:                          {AllowedOrigins: []string{"null"}},
		`origin "app.example.com" has no scheme`:                             {AllowedOrigins: []string{"app.example.com"}},
		`origin "https://app.example.com/" has more than scheme`:             {AllowedOrigins: []string{"https://app.example.com/"}},
		`browsers leave out the port of the scheme: write https://a.example`: {AllowedOrigins: []string{"https://a.example:443"}},

		`"0x" is not a port`:             {AllowedOrigins: []string{"https://a.example:0x"}},
		`"a.*.example" is not a host`:    {AllowedOrigins: []string{"https://a.*.example"}},
		`"*" is not a host`:              {AllowedOrigins: []string{"https://*"}},
		`"*example.com" is not a host`:   {AllowedOrigins: []string{"https://*example.com"}},
		`"bücher.example" is not a host`: {AllowedOrigins: []string{"https://bücher.example"}},
		`"*" is not a method`:            {AllowedOrigins: one, AllowedMethods: []string{"*"}},
		`"get" is not a method`:          {AllowedOrigins: one, AllowedMethods: []string{"get"}},
		`"X Key" is not the name`:        {AllowedOrigins: one, AllowedHeaders: []string{"X Key"}},
		`"a\r\nb" is not the name`:       {AllowedOrigins: one, ExposedHeaders: []string{"a\r\nb"}},
	} {
		if _, err := cors.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

// Headers of an upstream are replaced and Vary is extended, without writing to shared slices.
func TestSetHeaders(t *testing.T) {
	p := policy(t, cors.Config{AllowedOrigins: []string{"https://a.example"}, AllowCredentials: true, ExposedHeaders: []string{"X-A", "x-a", "X-B"}})
	shared := []string{"Accept-Encoding", "x"}
	h := http.Header{
		"Vary": shared[:1], "Access-Control-Allow-Origin": {"*", "null"}, "Access-Control-Allow-Methods": {"X"}, "Access-Control-Max-Age": {"9"},
		"Access-Control-Allow-Headers": {"X"}, "Access-Control-Allow-Private-Network": {"true"}, "X-Other": {"1"},
	}
	p.SetHeaders(h, p.AllowOrigin(from("https://a.example")))
	p.SetHeaders(h, p.AllowOrigin(from("https://a.example"))) // a second call changes nothing
	want := http.Header{
		"Vary": {"Accept-Encoding", "Origin"}, "Access-Control-Allow-Origin": {"https://a.example"}, "Access-Control-Allow-Credentials": {"true"},
		"Access-Control-Expose-Headers": {"X-A, X-B"}, "X-Other": {"1"},
	}
	if !equal(h, want) || shared[1] != "x" {
		t.Errorf("%v, want %v; %q", h, want, shared)
	}
	p.SetHeaders(h, p.AllowOrigin(from("https://b.example")))
	if want := (http.Header{"Vary": {"Accept-Encoding", "Origin"}, "X-Other": {"1"}}); !equal(h, want) {
		t.Errorf("%v, want %v", h, want)
	}
}

func TestPreflight(t *testing.T) {
	p := policy(t, cors.Config{AllowedOrigins: []string{"https://a.example"}, MaxAge: time.Minute})
	h := http.Header{}
	p.SetPreflightHeaders(h, from("https://a.example", "Access-Control-Request-Headers", "x-key,x-other"))
	want := http.Header{
		"Vary": {"Origin", "Access-Control-Request-Headers"}, "Access-Control-Allow-Origin": {"https://a.example"},
		"Access-Control-Allow-Methods": {"GET, HEAD, POST, PUT, PATCH, DELETE"}, "Access-Control-Allow-Headers": {"x-key,x-other"}, "Access-Control-Max-Age": {"60"},
	}
	if !equal(h, want) {
		t.Errorf("%v, want %v", h, want)
	}
	p = policy(t, cors.Config{AllowedOrigins: []string{"*"}, AllowedMethods: []string{"PUT"}, AllowedHeaders: []string{"X-Key", "X-B"}, MaxAge: -1})
	h = http.Header{}
	p.SetPreflightHeaders(h, from("https://b.example", "Access-Control-Request-Headers", "x-c"))
	want = http.Header{
		"Access-Control-Allow-Origin": {"*"}, "Access-Control-Allow-Methods": {"PUT"}, "Access-Control-Allow-Headers": {"X-Key, X-B"}, "Access-Control-Max-Age": {"0"},
	}
	if !equal(h, want) {
		t.Errorf("%v, want %v", h, want)
	}
}

func equal(a, b http.Header) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if !slices.Equal(a[name], b[name]) {
			return false
		}
	}
	return true
}

// isAllowed is a reference implementation: it compares the parts of an origin.
func isAllowed(allowed []string, origin string) bool {
	sent, err := url.Parse(origin)
	if err != nil || origin != sent.Scheme+"://"+sent.Host {
		return false
	}
	for _, text := range allowed {
		listed, err := url.Parse(strings.ToLower(strings.Replace(text, "*", "any", 1)))
		if err != nil || listed.Scheme != sent.Scheme || listed.Port() != sent.Port() {
			continue
		}
		domain, below := strings.CutPrefix(listed.Host, "any.")
		if !strings.Contains(text, "*") && listed.Host == sent.Host || below && strings.Contains(text, "*") && strings.HasSuffix(sent.Host, "."+domain) {
			return true
		}
	}
	return false
}

// For any policy and origin: Allow-Origin is never set for an origin that is not allowed, never "*" with credentials, and
// Vary contains Origin whenever the response depends on it.
func FuzzPolicy(f *testing.F) {
	for _, origin := range []string{"https://a.example", "https://x.b.example:8443", "null", "https://b.example", "https://a.example.", "https://A.example", "", "*", "https://a.example, https://c.example"} {
		f.Add("https://a.example https://*.b.example:8443", origin, true, "Accept")
		f.Add("*", origin, false, "*")
		f.Add("https://a.example *", origin, true, "origin")
		f.Add("https://*."+strings.TrimPrefix(origin, "https://"), origin, true, "")
	}
	f.Fuzz(func(t *testing.T, list, origin string, credentials bool, vary string) {
		allowed := strings.Fields(list)
		p, err := cors.New(cors.Config{AllowedOrigins: allowed, AllowCredentials: credentials, ExposedHeaders: []string{"Retry-After"}})
		if err != nil {
			return
		}
		all := slices.Contains(allowed, "*")
		if all && credentials {
			t.Fatal("credentials are allowed for all origins")
		}
		response := func(request http.Header, preflight bool) http.Header {
			h := http.Header{"Vary": {vary}, "Access-Control-Allow-Origin": {"https://upstream.example"}}
			if preflight {
				p.SetPreflightHeaders(h, request)
			} else {
				p.SetHeaders(h, p.AllowOrigin(request))
			}
			return h
		}
		for _, preflight := range []bool{false, true} {
			h, none := response(from(origin), preflight), response(http.Header{}, preflight)
			got := h["Access-Control-Allow-Origin"]
			switch {
			case all && (len(got) != 1 || got[0] != "*"):
				t.Fatalf("%q: %v", origin, h)
			case !all && got != nil && (len(got) != 1 || got[0] != origin || !isAllowed(allowed, origin)):
				t.Fatalf("%q of %q: %v", origin, allowed, h)
			case got == nil && (h["Access-Control-Allow-Credentials"] != nil || h["Access-Control-Expose-Headers"] != nil || h["Access-Control-Allow-Methods"] != nil):
				t.Fatalf("%q is not allowed, and gets %v", origin, h)
			}
			varies := strings.Contains(strings.ToLower(strings.Join(h["Vary"], ",")), "origin") || strings.Contains(vary, "*")
			if !equal(h, none) && !varies {
				t.Fatalf("%q: Vary is %q, and responses are %v and %v", origin, h["Vary"], h, none)
			}
		}
		for _, text := range allowed {
			if !strings.Contains(text, "*") && !all && p.AllowOrigin(from(strings.ToLower(text))) == nil {
				t.Fatalf("%q is not allowed by %q", text, allowed)
			}
		}
	})
}

func TestAllocations(t *testing.T) {
	p := policy(t, cors.Config{AllowedOrigins: []string{"https://*.example.com"}, ExposedHeaders: []string{"Retry-After"}})
	request, response := from("https://a.example.com"), http.Header{"Vary": {"Origin"}}
	if n := testing.AllocsPerRun(10, func() { p.SetHeaders(response, p.AllowOrigin(request)) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
