package forwardauthtest

import (
	"net/url"
	"path"
	"strings"
	"testing"
)

// spoofs are headers by which a client may try to impersonate the proxy.
var spoofs = []string{
	"X-Forwarded-Uri: /free",
	"x-forwarded-uri: /free",
	"X-Forwarded-Uri: /free\r\nX-Forwarded-Uri: /free",
	"X-Forwarded-Uri:",
	"X-Forwarded-Uri: /posts",
	"X_Forwarded_Uri: /free",
	"X-Forwarded-Method: GET",
	"X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /free\r\nX-Forwarded-Host: other.example",
	"X-Forwarded-Host: other.example",
	"X-Forwarded-Host: a\r\nX-Forwarded-Host: b",
	"X-Original-URI: /free",
	"X-Original-URL: http://example.com/free",
	"X-Original-Method: GET",
	"X-Rewrite-URL: /free",
	"X-Http-Method-Override: GET",
	"X-Sluice-Status: 204",
	"Connection: X-Forwarded-Uri",
	"Connection: X-Forwarded-Uri, X-Forwarded-Method, X-Forwarded-Host",
	"Connection: Upgrade\r\nUpgrade: websocket",
	"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
	"Expect: 100-continue",
	"Content-Length: 0",
	"Range: bytes=0-1",
	"If-Modified-Since: Sun, 15 Nov 2026 12:00:00 GMT",
	"Cache-Control: no-cache",
	"Upgrade-Insecure-Requests: 1",
}

func testSpoofed(t *testing.T, p Proxy) {
	c, key := p.spent(t, "spoofed")
	for _, lie := range spoofs {
		if a := c.ask("POST", "/posts", key, lie); a.Passed() || a.Status != 429 && a.Status != 400 {
			t.Errorf("%q: %v", lie, a)
		}
	}
	// A proxy may remove fields that Connection names, but then from the requests to both Sluice and the application.
	if a := c.ask("POST", "/posts", key, "Connection: X-Api-Key"); a.Passed() && strings.Contains(a.Header.Get(saw), "key=spoofed") {
		t.Errorf("the application received the key and Sluice did not: %v", a)
	}
	if a := c.ask("GET", "/internal/x", "X-Forwarded-Uri: /free"); a.Passed() || a.Status != 403 {
		t.Errorf("the deny list: %v", a)
	}
	for _, lie := range spoofs {
		if strings.Contains(lie, ": Upgrade") || strings.HasPrefix(lie, "Expect") {
			continue // how the application responds to it does not matter
		}
		if a := c.ask("GET", "/", lie); !a.Passed() {
			t.Errorf("an unlimited request with %q was rejected: %v", lie, a)
		}
	}
}

// counted are spellings that are equivalent to /posts.
var counted = []string{
	"/posts", "/posts?x=1", "/posts?", "//posts", "/./posts", "/x/../posts", "/posts/", "/posts/.", "/%70osts", "/p%6Fst%73",
	"/x/%2e%2e/posts", "/%2e/posts", "/posts/x/..", "http://example.com/posts", "///posts//",
}

// doubtful are spellings that some application may treat as /posts. They may be rejected or counted, or be normalized
// on the way; but the application must not receive a target that any application would treat as /posts.
var doubtful = []string{
	"/posts%2F", "/%2fposts", "/x%2f..%2fposts", "/x/..%2fposts", "/..%2fposts", "/posts;v=1", "/posts;", "/;x/posts",
	"/x;/../posts", "/x/..;/posts", "/posts%3Bv", "\\posts", "/\\posts", "/x\\..\\posts", "/%5cposts", "/x/..%5cposts",
	"/posts%00", "/posts%00.html", "/%2570osts", "/%25%37%30osts", "/%u0070osts", "/posts#", "/posts#x", "/posts#/../free",
	"/free#/../posts", "/free?/../../posts", "/posts%23", "/posts%3f", "/posts%3F/../free", "/../posts", "/x/../../posts",
	"/%c0%afposts", "/%e0%80%afposts", "/%ef%bc%8fposts", "/posts%0a", "/posts%0d%0aX: y", "/posts%20", "/posts%09", "/%20/../posts",
	"/posts\t", "http://other.example/posts", "HTTP://EXAMPLE.COM/posts", "//example.com/../posts", "posts", "*", "/%zz/../posts",
	"/%", "/posts%", "?/posts", "http://example.com", "http://example.com?x/../posts", "/\xff/../posts", "/posts\xc2\xa0",
	"/free/%2e%2e%2fposts", "/./%2e/./posts", "/posts/%2e", "/posts/%2e%2e/posts",
}

func testPaths(t *testing.T, p Proxy) {
	c, key := p.spent(t, "paths")
	for _, target := range counted {
		if a := c.ask("POST", target, key); a.Status != 429 || a.Passed() {
			t.Errorf("POST %q: %v", target, a)
		}
	}
	for _, target := range doubtful {
		a := c.ask("POST", target, key)
		if _, arrived := a.asked(); a.Passed() && readAsPosts(arrived) {
			t.Errorf("POST %q reached the application: %v", target, a)
		}
		if a.Status == 500 {
			t.Errorf("POST %q returned a server error: %v", target, a)
		}
	}
	for _, method := range []string{"post", "Post", "POST,GET", "GET,POST"} {
		a := c.ask(method, "/posts", key)
		if arrived, _ := a.asked(); strings.EqualFold(arrived, "POST") {
			t.Errorf("%s reached the application: %v", method, a)
		}
	}
}

// readAsPosts reports whether some application may treat the received target as /posts: one that decodes twice or not
// at all, treats backslashes as slashes, or cuts parameters or at NUL. As elsewhere, "/posts " and "/posts?" with the
// last character escaped are other paths.
func readAsPosts(target string) bool {
	if u, err := url.Parse(target); err == nil && u.IsAbs() {
		target = u.RequestURI()
	}
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
			atParameters, _, _ := strings.Cut(reading, ";")
			for _, r := range []string{reading, strings.Join(segments, "/"), atNUL, atParameters} {
				if path.Clean("/"+r) == "/posts" {
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

// testLarge checks that headers that are too large for Sluice, or for the request to it, do not bypass it.
func testLarge(t *testing.T, p Proxy) {
	c, key := p.spent(t, "large")
	var sizes []int
	for n := 1000; n < 40_000; n += 1000 {
		sizes = append(sizes, n)
	}
	for n := 14_900; n < 15_400; n += 20 { // around the size of HAProxy's buffer
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		var lines []string
		for rest := n; rest > 0; rest -= 1000 {
			lines = append(lines, "X-Large: "+strings.Repeat("x", max(0, min(rest, 1000)-11)))
		}
		for what, a := range map[string]*Answer{
			"headers":           c.ask("POST", "/posts", append(lines, key)...),
			"query and headers": c.ask("POST", "/posts?"+strings.Repeat("x", n/2), append(lines[:len(lines)/2], key)...),
		} {
			if a.Passed() || a.Status < 400 || a.Status >= 500 {
				t.Errorf("with %d bytes of %s: %v", n, what, a)
			}
		}
	}
}
