package httplimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// raw sends a request byte for byte, without the normalization of an HTTP client, and returns the response.
func raw(t *testing.T, s *httptest.Server, head string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, head+"Connection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", head, err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp
}

// spellings are paths that some applications read as /posts/7. Each must be counted as /posts/7 or rejected; it must not be
// served as /posts/7 and counted as another path.
var spellings = []string{
	// Escapes.
	"/posts/7", "/%70osts/7", "/%70%6f%73%74%73/7", "/%70%6F%73%74%73/%37", "/post%73/7", "/posts/%37", "/p%6fst%73/%37",
	"http://x/posts/7", "http://X:80/%70osts/7", "http://other.example/posts/7",
	// Slashes.
	"//posts/7", "///posts/7", "/posts//7", "/posts///7", "/posts/7/", "/posts/7//", "//posts//7//", "/%2fposts/7",
	"/posts%2f7", "/posts%2F7", "/posts/7%2f", "/posts%2f%2f7", "http://x//posts/7", "/x%2f..%2fposts/7",
	// Dots.
	"/./posts/7", "/posts/./7", "/posts/7/.", "/posts/7/./", "/x/../posts/7", "/posts/x/../7", "/posts/7/x/..",
	"/posts/../posts/7", "/%2e/posts/7", "/posts/%2e/7", "/x/%2e%2e/posts/7", "/x/.%2e/posts/7", "/x/%2E./posts/7",
	"/posts/7/x/%2e%2e", "/x/y/../../posts/7", "/x//../posts/7", "/../posts/7", "/%2e%2e/posts/7",
	"/posts/7/../../posts/7",
	"/posts/7/../../../posts/7", "/x/..%2fposts/7", "/x/%252e%252e/posts/7", "/./x/./../posts/./7",
	// Parameters.
	"/posts;v=1/7", "/posts/7;v=1", "/posts;/7", "/posts/7;", "/;x/posts/7", "/x/..;/posts/7", "/x/..;a=b/posts/7",
	"/posts/7;jsessionid=1", "/posts%3bv=1/7", "/posts/7%3B", "/.;/posts/7",
	// Escaped twice.
	"/%2570osts/7", "/posts%252f7", "/%25%37%30osts/7", "/posts/%2537", "/%252e/posts/7",
	// Other slashes, dots and digits.
	`/posts\7`, "/posts%5c7", "/posts%5C7", `\posts\7`, `/x\..\posts\7`, "/posts/\uff17", "/posts/%ef%bc%97",
	"/posts\uff0f7", "/posts%ef%bc%8f7", "/posts/\u2024/7", "/x/\uff0e\uff0e/posts/7", "/posts/7\u200b",
	"/posts/7%e2%80%8b", "/posts\u22157", "/posts/7\u00ad",
	// Overlong and invalid.
	"/posts%c0%af7", "/posts%e0%80%af7", "/%c1%b0osts/7", "/posts/7%00", "/posts%00/7", "/posts/7%0a", "/posts/7%0d%0a",
	"/posts/7%09", "/posts/7%7f", "/posts/7%", "/posts/7%2", "/posts/%zz7", "/%u0070osts/7", "/posts/7%20", "/posts/7+",
	"/posts/7.", "/posts/%37%ff", "/posts/7\t", "/posts/7\x01", "/posts/7\x7f",
	// Case, and targets that are no path.
	"/POSTS/7", "/Posts/7", "/pOsTs/7", "posts/7", "./posts/7", "http:/posts/7", "/posts/7#x", "/posts/7%23x",
	"/posts/7?x=y", "/posts/7?/../x", "/posts/7%3fx", "*", "http://x", "?x", "/posts/7??", "/posts?/7", "/posts/07",
	"/caf\u00e9", "/cafe\u0301",
}

// pathServer counts posts by id and all requests by path, and sends the paths that the handler and the rules saw in headers.
func pathServer(t *testing.T, store sluice.Store) *httptest.Server {
	set := ruleSet(rules.Config{Rules: []rules.Rule{
		{Name: "posts", Match: where("path", "/posts/{id}"), Per: refs("path:id"), Limits: limits(sluice.PerDay(1000))},
		{Name: "all", Per: refs("path"), Limits: limits(sluice.PerDay(100000))},
	}})
	mux := http.NewServeMux()
	mux.HandleFunc("/posts/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Served", r.PathValue("id"))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, x := range set.Explain(httplimit.NewRulesRequest(r, set)).Rules {
			if x.Name == "all" {
				w.Header().Set("X-Matched", strconv.Quote(x.Takes[0].Key))
			}
		}
		w.Header().Set("X-Seen", strconv.Quote(r.URL.Path))
		mux.ServeHTTP(w, r)
	})
	s := httptest.NewServer(httplimit.RulesMiddleware(limiter(store), func() *rules.Set { return set })(handler))
	t.Cleanup(s.Close)
	return s
}

// TestRulesPaths: every spelling of /posts/7 is counted as /posts/7 or rejected.
func TestRulesPaths(t *testing.T) {
	if len(spellings) < 80 {
		t.Errorf("%d spellings are fewer than 80", len(spellings))
	}
	store := memstore.New()
	s := pathServer(t, store)
	posts := int64(0)
	for _, spelling := range spellings {
		resp := raw(t, s, "GET "+spelling+" HTTP/1.1\r\nHost: x\r\n")
		if resp.StatusCode == http.StatusBadRequest {
			continue
		}
		seen, err := strconv.Unquote(resp.Header.Get("X-Seen"))
		matched, err2 := strconv.Unquote(resp.Header.Get("X-Matched"))
		if err != nil || err2 != nil {
			t.Errorf("%q: status %d, neither rejected nor served", spelling, resp.StatusCode)
			continue
		}
		if clean := matchedForm(seen); clean != matched {
			t.Errorf("%q: the handler saw %q and the rules %q", spelling, seen, matched)
		}
		counted := strings.Contains(resp.Header.Get("Ratelimit-Policy"), `"posts"`)
		if resp.Header.Get("X-Served") != "" && !counted {
			t.Errorf("%q: served as a post but not counted as one", spelling)
		}
		if matched == "/posts/7" {
			posts++
			if !counted {
				t.Errorf("%q: not counted", spelling)
			}
		}
	}
	d, err := limiter(store, rule("posts", sluice.PerDay(1000))).Peek(t.Context(), "7")
	if err != nil || 1000-d.Remaining != posts || posts < 20 {
		t.Errorf("%d were counted for post 7, %v; want %d, and at least 20", 1000-d.Remaining, err, posts)
	}
}

// matchedForm returns the form in which rules must match a handler's path: cleaned, in Unicode normalization form C, so
// that paths that look the same are counted as the same, and without trailing dots and spaces of names, which some servers
// ignore.
func matchedForm(seen string) string {
	names := strings.Split(norm.NFC.String(path.Clean("/"+seen)), "/")
	for i, name := range names {
		names[i] = strings.TrimLeft(strings.TrimRight(name, ". "), " ")
	}
	return strings.Join(names, "/")
}

// FuzzRulesPath: rules match the cleaned form of the path that a handler sees, or the request is rejected.
func FuzzRulesPath(f *testing.F) {
	for _, s := range spellings {
		f.Add(s)
	}
	set := ruleSet(rules.Config{Rules: []rules.Rule{{Name: "all", Per: refs("path"), Limits: limits(sluice.PerDay(1))}}})
	f.Fuzz(func(t *testing.T, target string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n")))
		if err != nil {
			return
		}
		var m rules.MatchResult
		if err := set.Match(httplimit.NewRulesRequest(r, set), &m); err != nil {
			return
		}
		if clean := matchedForm(r.URL.Path); m.Takes[0].Key != clean {
			t.Errorf("%q: the handler sees %q and the rules %q", target, r.URL.Path, m.Takes[0].Key)
		}
	})
}

// TestRulesHeaderSpellings: for any lines similar to X-User, the request counts for the user that a handler reads under
// that name, or is rejected.
func TestRulesHeaderSpellings(t *testing.T) {
	set := ruleSet(rules.Config{Rules: []rules.Rule{
		{Name: "per-user", Per: refs("header:X-User"), Limits: limits(sluice.PerDay(1000))},
	}})
	refused, absentKey := "(rejected)", absent
	s := httptest.NewServer(httplimit.RulesMiddleware(limiter(memstore.New()), func() *rules.Set { return set })(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var m rules.MatchResult
			if err := set.Match(httplimit.NewRulesRequest(r, set), &m); err != nil {
				t.Error(err)
				return
			}
			w.Header().Set("X-Key", strconv.Quote(m.Takes[0].Key))
		})))
	defer s.Close()
	for _, tt := range []struct {
		lines []string
		want  string
	}{
		{nil, absentKey},
		{[]string{"X-User: ada"}, "ada"},
		{[]string{"x-user: ada"}, "ada"},
		{[]string{"X-USER: ada"}, "ada"},
		{[]string{"x-UsEr:ada"}, "ada"},
		{[]string{"X-User:   ada \t"}, "ada"},
		{[]string{"X-User: Ada"}, "Ada"}, // values keep their case unless the attribute has lowercase
		{[]string{"X-User:"}, "\x00-"},
		{[]string{"X-User: ada, bob"}, "ada, bob"},
		{[]string{"X-User: ada", "X-User: ada"}, refused},
		{[]string{"X-User: ada", "x-user: bob"}, refused},
		{[]string{"X-User: ada", "X-USER:"}, refused},
		{[]string{"X_User: ada"}, refused},
		{[]string{"x_user: ada"}, refused},
		{[]string{"X-User: ada", "X_User: bob"}, refused},
		{[]string{"X_USER: bob", "X-User: ada"}, refused},
		{[]string{"X-User : ada"}, refused}, // net/http rejects a space before the colon
		{[]string{"X-User: ada\r\n bob"}, "ada bob"},
		{[]string{"X-Users: ada"}, absentKey},
		{[]string{"XUser: ada"}, absentKey},
		{[]string{"X--User: ada"}, absentKey},
		{[]string{"X-User: \x00"}, refused},
	} {
		resp := raw(t, s, "GET / HTTP/1.1\r\nHost: x\r\n"+strings.Join(append(tt.lines, ""), "\r\n"))
		got := refused
		if resp.StatusCode == 200 {
			got, _ = strconv.Unquote(resp.Header.Get("X-Key"))
		} else if resp.StatusCode != 400 {
			t.Errorf("%q: status %d", tt.lines, resp.StatusCode)
		}
		if got != tt.want {
			t.Errorf("%q: counted for %q, want %q", tt.lines, got, tt.want)
		}
	}
}

// TestRulesSpoofedAddress: a client cannot choose its address, and one behind a trusted proxy has its own.
func TestRulesSpoofedAddress(t *testing.T) {
	perIP := []rules.Rule{{Name: "per-ip", Per: refs("ip"), Limits: limits(sluice.PerDay(3))}}
	for name, tt := range map[string]struct {
		client  rules.ClientIP
		forward func(i int) string
		want    int // number of allowed requests of 10
	}{
		"no trusted proxy": {
			rules.ClientIP{}, func(i int) string { return fmt.Sprintf("198.51.100.%d", i) }, 3,
		},
		"another trusted proxy": {
			rules.ClientIP{TrustedProxies: prefixes("10.0.0.0/8")},
			func(i int) string { return fmt.Sprintf("198.51.100.%d", i) }, 3,
		},
		"forged entry on the left": {
			rules.ClientIP{TrustedProxies: prefixes("127.0.0.0/8", "::1/128")},
			func(i int) string { return fmt.Sprintf("198.51.100.%d, 203.0.113.5", i) }, 3,
		},
		"one client each": {
			rules.ClientIP{TrustedProxies: prefixes("127.0.0.0/8", "::1/128")},
			func(i int) string { return fmt.Sprintf("203.0.113.5, 198.51.100.%d", i) }, 10,
		},
		"by hops": {
			rules.ClientIP{ProxyHops: 2},
			func(i int) string { return fmt.Sprintf("198.51.100.%d, 203.0.113.5, 10.0.0.%d", i, i) }, 3,
		},
	} {
		url := server(t, byRules(memstore.New(), rules.Config{ClientIP: tt.client, Rules: perIP}))
		allowed := 0
		for i := range 10 {
			if resp, _ := get(t, url, header("X-Forwarded-For", tt.forward(i))); resp.StatusCode == 200 {
				allowed++
			}
		}
		if allowed != tt.want {
			t.Errorf("%s: %d of 10 allowed, want %d", name, allowed, tt.want)
		}
	}
}

// TestRulesServerClaims: middleware around the rules sets the claims and attributes.
func TestRulesServerClaims(t *testing.T) {
	perSub := rules.Rule{
		Name: "per-sub", Match: where("attr:region", "eu"), Per: refs("claim:sub"), OnMissing: rules.MissingReject,
		Limits: limits(sluice.PerDay(1)),
	}
	inner := byRules(memstore.New(), rules.Config{Rules: []rules.Rule{perSub}})
	url := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := httplimit.ContextWithAttributes(r.Context(), map[string]string{"region": r.Header.Get("X-Test-Region")})
		if sub := r.Header.Get("X-Test-Sub"); sub != "" {
			ctx = httplimit.ContextWithClaims(ctx, map[string]string{"sub": sub})
		}
		inner.ServeHTTP(w, r.WithContext(ctx))
	}))
	for i, step := range []struct {
		region, sub string
		want        int
	}{{"eu", "ada", 200}, {"eu", "ada", 429}, {"eu", "bob", 200}, {"us", "ada", 200}, {"us", "", 200}, {"eu", "", 403}} {
		edits := []func(*http.Request){header("X-Test-Region", step.region)}
		if step.sub != "" {
			edits = append(edits, header("X-Test-Sub", step.sub))
		}
		if resp, _ := get(t, url, edits...); resp.StatusCode != step.want {
			t.Errorf("step %d: status %d, want %d", i, resp.StatusCode, step.want)
		}
	}
}
