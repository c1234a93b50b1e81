package gateway_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/forwardauthtest"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/rules"
)

// spellings are targets that some servers read as /posts, or that are /posts and some servers read differently.
var spellings = []string{
	"/posts", "/posts?x=1", "/posts?", "/posts/", "/posts//", "//posts", "///posts", "//posts//", "/./posts", "/././posts", "/posts/.",
	"/posts/./", "/x/../posts", "/x/y/../../posts", "/posts/x/..", "/posts/x/../", "/posts/../posts", "/%70osts", "/p%6fsts", "/p%6Fsts",
	"/%70%6f%73%74%73", "/posts/%2e", "/%2e/posts", "/%2E/posts", "/x/%2e%2e/posts", "/x/.%2e/posts", "/x/%2e./posts", "/x/%2E%2E/posts",
	"http://example.com/posts", "http://example.com//posts", "http://example.com/x/../posts",

	"/posts%2f", "/posts%2F", "/%2fposts", "/x%2f..%2fposts", "/x/..%2fposts", "/..%2fposts", "/x/%2e%2e%2fposts", "/posts%5c",
	"/posts;", "/posts;v=1", "/posts;v=1/", "/;x/posts", "/;/posts", "/x;/../posts", "/x/..;/posts", "/x/..;a/posts", "/x/.;/posts",
	"/posts%3b", "/posts%3Bv", `\posts`, `/\posts`, `/x\..\posts`, `/x/..\posts`, "/%5cposts", "/x/..%5cposts", "/x%5c..%5cposts",
	"/posts%00", "/posts%00.html", "/%00/../posts", "/%2570osts", "/%25%37%30osts", "/%252e%252e/posts", "/x/%252e%252e/posts",
	"/x%252f..%252fposts", "/%u0070osts", "/%u002e%u002e/posts", "/posts#", "/posts#x", "/posts#/../free", "/free#/../posts",
	"/posts%23", "/posts%3f", "/posts%3fx=1", "/free?/../posts", "/free?/../../posts", "/../posts", "/x/../../posts", "/../../posts",
	"/%2e%2e/posts", "/.../posts", "/x/.../posts", "/..../posts", "/%c0%afposts", "/%c0%ae%c0%ae/posts", "/%e0%80%afposts",
	"/%ef%bc%8fposts", "/%e2%81%84posts", "/%e2%88%95posts", "/x/%e2%80%a5/posts", "/%ef%bd%90osts", "/p%cc%81osts", "/posts%e2%80%8b",
	"/posts%ef%bb%bf", "/posts%c2%ad", "/%e2%80%aeposts", "/posts%0a", "/posts%0d%0aX:%20y", "/posts%09", "/posts%20", "/posts%20/", "/posts.",
	"/posts..", "/posts/..", "/posts/../", "/posts%2e", "/POSTS", "/Posts", "/%50OSTS", "/posts%", "/posts%2", "/posts%zz", "/%zz/../posts",
	"/\xff/../posts", "/posts\xc2\xa0", "/\xc3\xa9/../posts", "http://other.example/posts", "HTTP://EXAMPLE.COM/posts", "https://example.com/posts",
	"http://user@example.com/posts", "http://example.com:80/posts", "ftp://example.com/posts", "http:///posts", "http:/posts", "http:posts",
	"//example.com/../posts", "//other.example/posts", "posts", "./posts", "*", "", "?/posts", "/posts?/../x", "/%", "/posts|", "/posts\"", "/<posts>/../posts",
	"/posts/%2e%2e/posts", "/x/%2e%2e%3b/posts", "/posts,", "/posts&x", "/posts=1", "/posts:80", "/posts@example.com", "/posts+", "/posts~", "/~/../posts",
	"/posts*", "/*/../posts", "/{x}/../posts", "/posts/%2E%2e/posts/", "/x/..%00/posts", "/x/%2e%2e\\posts", "/posts%c0%80", "/posts/%20/..",
}

var policyName = regexp.MustCompile(`^"([^"]*)"`)

// Every spelling of a path is rejected, or the application receives the path that the rules counted: no application, however
// lenient its parser, serves /posts for a request that was counted as another path.
func TestSpellings(t *testing.T) {
	if len(spellings) < 150 {
		t.Fatalf("there are %d", len(spellings))
	}
	set, limiter := limits(t, `
rules:
  - {name: posts, match: {path: /posts}, limit: 100000/h}
  - {name: other, match: {path: {not: /posts}}, limit: 100000/h}
`)
	address := start(t, gateway.Config{
		Rules: set, Limiter: limiter,
		Routes: []gateway.Route{{Path: pattern(t, "/**"), Upstream: group(t, "http://"+forwardauthtest.App(t))}},
	})
	counted := 0
	for _, target := range spellings {
		a := get(t, address, target)
		saw := a.header.Get("App-Saw")
		switch {
		case a.status == http.StatusBadRequest && saw == "":
			continue
		case a.status != http.StatusOK || saw == "":
			t.Errorf("%q: %+v", target, a)
			continue
		}
		_, rest, _ := strings.Cut(saw, " ")
		arrived, _, _ := strings.Cut(rest, " key=")
		name := policyName.FindStringSubmatch(a.header.Get("Ratelimit"))[1]
		if posts := anybodyReads(arrived, "/posts"); posts != (name == "posts") {
			t.Errorf("%q was counted as %s and forwarded as %q", target, name, arrived)
		}
		if name == "posts" {
			counted++
		}
		checkArrived(t, target, arrived)
	}
	if counted < 30 {
		t.Errorf("%d are /posts", counted)
	}
}

// The same for random paths, without a network.
func TestAnySpelling(t *testing.T) {
	pieces := []string{
		"/", "/", "/", "a", "posts", "p", "osts", ".", "..", "%2e", "%2E", "%2f", "%5c", "\\", ";", "%3b", "%", "%25", "%70", "%00", "?", "#", "%c3%a9", "é",
		"e%cc%81", "%ef%bc%8f", "%20", " ", "|", "\"", "*", "{", "~", "%7e", "+", ":", "@", "%ff", "\xff", "%e2%80%8b",
	}
	set, _ := limits(t, "rules: []")
	rapid.Check(t, func(t *rapid.T) {
		target := "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "pieces"), "")
		checkTarget(t, set, target)
	})
}

// FuzzTarget searches for a target whose forwarded path differs from the matched path.
func FuzzTarget(f *testing.F) {
	for _, target := range spellings {
		f.Add(target)
	}
	set, _ := limits(f, "rules: []")
	f.Fuzz(func(t *testing.T, target string) { checkTarget(t, set, target) })
}

type tester interface {
	Errorf(string, ...any)
	Fatal(...any)
}

// checkTarget sends a target through a gateway with one route for all paths, and checks the request that its upstream gets.
func checkTarget(t tester, set func() *rules.Set, target string) {
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: example.com\r\n\r\n")))
	if err != nil {
		return // net/http's server responds with 400
	}
	all, err := match.ParsePattern("/**", false)
	if err != nil {
		t.Fatal(err)
	}
	var arrived, matched string
	g, err := gateway.New(gateway.Config{
		Rules: set,
		Routes: []gateway.Route{{Path: all, Upstream: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			out := *r.URL // as a client writes it into the first line
			out.Scheme, out.Host = "http", "app"
			arrived = out.RequestURI()
		})}},
		Shed: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if matched, err = match.CanonicalPath(r.URL.EscapedPath()); err != nil {
					t.Errorf("%q: accepted by the gateway but rejected by rules: %v", target, err)
				}
				next.ServeHTTP(w, r)
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, req)
	if arrived == "" {
		if w.Code != http.StatusBadRequest {
			t.Errorf("%q: %d", target, w.Code)
		}
		return
	}
	checkArrived(t, target, arrived)
	path, _, _ := strings.Cut(arrived, "?")
	if got, err := match.CanonicalPath(path); err != nil || got != matched {
		t.Errorf("%q was matched as %q and arrived as %q", target, matched, arrived)
	}
	if anybodyReads(arrived, "/posts") != (withoutLooseEnds(matched) == "/posts") {
		t.Errorf("%q was matched as %q and arrived as %q", target, matched, arrived)
	}
}

// checkArrived fails the test unless the forwarded target is canonical, except a trailing slash.
func checkArrived(t interface{ Errorf(string, ...any) }, sent, arrived string) {
	raw, _, _ := strings.Cut(arrived, "?")
	canonical, err := match.CanonicalPath(raw)
	if err != nil || match.EscapePath(canonical) != raw && match.EscapePath(canonical)+"/" != raw {
		t.Errorf("%q was forwarded as %q, which is not canonical: %v", sent, arrived, err)
	}
}

// anybodyReads reports whether some application may read a target as the path want: one that decodes twice or not at all,
// treats backslashes as slashes, removes parameters, ends at NUL, or ignores trailing dots and spaces of names.
func anybodyReads(target, want string) bool {
	if i := strings.IndexAny(target, "?#"); i >= 0 {
		target = target[:i]
	}
	for range 3 {
		for _, reading := range []string{target, strings.ReplaceAll(target, `\`, "/")} {
			segments := strings.Split(reading, "/")
			for i, s := range segments {
				segments[i], _, _ = strings.Cut(s, ";")
			}
			atNUL, _, _ := strings.Cut(reading, "\x00")
			for _, r := range []string{reading, strings.Join(segments, "/"), atNUL} {
				if r = path.Clean("/" + r); r == want || withoutLooseEnds(r) == want {
					return true
				}
			}
		}
		decoded, err := url.PathUnescape(target)
		if err != nil {
			break
		}
		target = decoded
	}
	return false
}

// withoutLooseEnds returns a path without trailing dots and spaces of its names, as rules match it.
func withoutLooseEnds(path string) string {
	names := strings.Split(path, "/")
	for i, name := range names {
		names[i] = strings.TrimLeft(strings.TrimRight(name, ". "), " ")
	}
	return strings.Join(names, "/")
}
