package forwardauthtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Proxy is a proxy that sends forward-auth requests to a Sluice with the rules of examples/auth, in front of an [App].
type Proxy struct{ Address string }

// limit is that of the rules, per hour.
const limit = 10

// tests are the tests for a running Sluice.
var tests = map[string]func(*testing.T, Proxy){
	"the limit is exact":     testExact,
	"a denial is a 429":      testDenied,
	"the deny list is a 403": testRefused,
	"unlimited requests":     testUnlimited,
	"bodies arrive":          testBody,
	"responses to HEAD":      testHead,
	"HTTP/1.0 client":        testOld,
	"addresses":              testAddress,
	"rejected requests":      testUncountable,
	"spoofed headers":        testSpoofed,
	"spellings of a path":    testPaths,
	"large headers":          testLarge,
}

// Run runs all tests for a running Sluice.
func (p Proxy) Run(t *testing.T) {
	p.RunSilent(t)
	t.Run("quota headers", func(t *testing.T) { testQuota(t, p) })
}

// RunSilent runs the tests for proxies that do not forward the quota headers to clients.
func (p Proxy) RunSilent(t *testing.T) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, p) })
	}
}

// client returns a client with the address 127.0.0.n.
func (p Proxy) client(t testing.TB, n int) *client {
	return &client{t: t, from: fmt.Sprintf("127.0.0.%d", n), to: p.Address}
}

// spent returns a client and the header of an API key whose limit for POST /posts is exhausted.
func (p Proxy) spent(t testing.TB, key string) (c *client, header string) {
	t.Helper()
	c, header = p.client(t, 2), "X-Api-Key: "+key
	for i := range limit {
		if a := c.ask("POST", "/posts", header); a.Status != 200 || !a.Passed() {
			t.Fatalf("request %d: %v", i+1, a)
		}
	}
	if a := c.ask("POST", "/posts", header); a.Status != 429 || a.Passed() {
		t.Fatalf("request above the limit: %v", a)
	}
	return c, header
}

// atOnce sends a request many times concurrently and returns the responses.
func (p Proxy) atOnce(t testing.TB, n int, method, target string, headers ...string) []*Answer {
	answers := make([]*Answer, n)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = p.client(t, 2).ask(method, target, headers...) })
	}
	all.Wait()
	return answers
}

// testExact checks that exactly the limit of concurrent requests is allowed.
func testExact(t *testing.T, p Proxy) {
	passed := 0
	answers := p.atOnce(t, 4*limit, "POST", "/posts", "X-Api-Key: exact")
	for _, a := range answers {
		switch {
		case a.Passed() && a.Status == 200:
			passed++
		case a.Status != 429:
			t.Errorf("neither allowed nor denied: %v", a)
		}
	}
	if passed != limit {
		t.Errorf("%d of %d were allowed", passed, len(answers))
	}
}

func testQuota(t *testing.T, p Proxy) {
	for i := range 3 {
		a := p.client(t, 2).ask("POST", "/posts?draft=1", "X-Api-Key: quota", "Origin: https://example.com")
		if want := "POST /posts?draft=1 key=quota body=0"; a.Header.Get(saw) != want {
			t.Errorf("the application received %q, want %q", a.Header.Get(saw), want)
		}
		left := limit - 1 - i
		for name, want := range map[string]string{
			"X-Ratelimit-Limit":     "10",
			"X-Ratelimit-Remaining": strconv.Itoa(left),
			"Ratelimit-Policy":      `"posts-per-key";q=10;w=3600`,
			"Ratelimit":             fmt.Sprintf(`"posts-per-key";r=%d;t=%d`, left, left*360),
		} {
			if got := a.Header[name]; !slices.Equal(got, []string{want}) {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if got, err := strconv.Atoi(a.Header.Get("X-Ratelimit-Reset")); err != nil || got > (i+1)*360 || got < i*360 {
			t.Errorf("X-Ratelimit-Reset is %q", a.Header["X-Ratelimit-Reset"])
		}
		if got := a.Header.Get("Access-Control-Expose-Headers"); !strings.Contains(got, "X-Ratelimit-Remaining") {
			t.Errorf("Access-Control-Expose-Headers is %q", got)
		}
		for _, name := range []string{"Retry-After", "X-Ratelimit-Retry-After", "X-Ratelimit-Degraded", "X-Sluice-Status"} {
			if got, ok := a.Header[name]; ok {
				t.Errorf("%s is %q", name, got)
			}
		}
	}
}

// problem is the problem document of a denial.
type problem struct {
	Status   int
	Title    string
	Instance string
	Violated []string `json:"violated-policies"`
}

func (a *Answer) problem(t testing.TB) (p problem) {
	t.Helper()
	if got := a.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("body is %q", got)
	}
	if err := json.Unmarshal([]byte(a.Body), &p); err != nil {
		t.Errorf("%v: %v", err, a)
	}
	return p
}

func testDenied(t *testing.T, p Proxy) {
	c, key := p.spent(t, "denied")
	a := c.ask("POST", "/posts?secret=1", key, "Origin: https://example.com")
	if a.Status != 429 || a.Passed() {
		t.Fatalf("got %v", a)
	}
	after, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if err != nil || after < 300 || after > 360 {
		t.Errorf("Retry-After is %q", a.Header["Retry-After"])
	}
	for name, want := range map[string]string{
		"X-Ratelimit-Limit":       "10",
		"X-Ratelimit-Remaining":   "0",
		"X-Ratelimit-Reset":       strconv.Itoa(after),
		"X-Ratelimit-Retry-After": strconv.Itoa(after),
		"Ratelimit-Policy":        `"posts-per-key";q=10;w=3600`,
		"Ratelimit":               fmt.Sprintf(`"posts-per-key";r=0;t=%d`, after),
	} {
		if got := a.Header[name]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := a.Header.Get("Access-Control-Expose-Headers"); !strings.Contains(got, "Retry-After") {
		t.Errorf("Access-Control-Expose-Headers is %q", got)
	}
	if b := a.problem(t); b.Status != 429 || b.Title != "Too Many Requests" || b.Instance != "/posts" || !slices.Equal(b.Violated, []string{"posts-per-key"}) {
		t.Errorf("body is %s", a.Body)
	}
	if a := c.ask("POST", "/posts", "X-Api-Key: denied-not"); a.Status != 200 {
		t.Errorf("another key: %v", a)
	}
	if a := c.ask("GET", "/posts", key); a.Status != 200 {
		t.Errorf("another method: %v", a)
	}
}

// testRefused checks that a rejection by the deny list differs from a denial by a limit.
func testRefused(t *testing.T, p Proxy) {
	a := p.client(t, 2).ask("GET", "/internal/users")
	if b := a.problem(t); a.Status != 403 || a.Passed() || b.Status != 403 || b.Instance != "/internal/users" {
		t.Errorf("got %v", a)
	}
	if a := p.client(t, 2).ask("GET", "/?x=1&debug=1"); a.Status != 403 || a.Passed() {
		t.Errorf("denied path in the query: %v", a)
	}
	for _, name := range []string{"Retry-After", "Ratelimit", "X-Ratelimit-Limit"} {
		if got, ok := a.Header[name]; ok {
			t.Errorf("%s is %q", name, got)
		}
	}
}

func testUnlimited(t *testing.T, p Proxy) {
	for range limit + 1 {
		a := p.client(t, 2).ask("GET", "/")
		if a.Status != 200 || !a.Passed() {
			t.Fatalf("got %v", a)
		}
		for name := range a.Header {
			if strings.Contains(name, "Ratelimit") || name == "Retry-After" {
				t.Errorf("%s is set for an unlimited request", name)
			}
		}
	}
}

// testBody checks that the forward-auth request does not consume the request body.
func testBody(t *testing.T, p Proxy) {
	a := p.client(t, 2).askWithBody("POST", "/posts", strings.Repeat("x", 100_000), "X-Api-Key: body")
	if got, want := a.Header.Get(saw), "POST /posts key=body body=100000"; got != want {
		t.Errorf("the application received %q, want %q", got, want)
	}
}

// testHead checks that a denied HEAD has no body, so that the next response on the connection is read correctly.
func testHead(t *testing.T, p Proxy) {
	c := p.client(t, 2)
	conn, err := c.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for _, ask := range []struct {
		method, target string
		status         int
	}{{"HEAD", "/internal/x", 403}, {"GET", "/", 200}, {"HEAD", "/internal/x", 403}} {
		if _, err := io.WriteString(conn, text(ask.method, ask.target, []string{"Host: example.com"})); err != nil {
			t.Fatal(err)
		}
		if a := c.read(r, ask.method); a.Status != ask.status {
			t.Fatalf("%s %s: %v", ask.method, ask.target, a)
		}
	}
}

// testOld checks that a client of HTTP/1.0 without a Host header is limited like others.
func testOld(t *testing.T, p Proxy) {
	c, key := p.spent(t, "old")
	for target, want := range map[string]int{"/posts": 429, "/": 200} {
		conn, err := c.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "POST "+target+" HTTP/1.0\r\n"+key+"\r\nContent-Length: 0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if a := c.read(bufio.NewReader(conn), "POST"); a.Status != want {
			t.Errorf("%s: %v", target, a)
		}
	}
}

// testAddress checks that clients are counted by their own addresses, regardless of their headers.
func testAddress(t *testing.T, p Proxy) {
	c := p.client(t, 3)
	for i := range limit {
		if a := c.ask("GET", fmt.Sprintf("/reports/%d", i)); a.Status != 200 {
			t.Fatalf("request %d: %v", i+1, a)
		}
	}
	for _, lie := range []string{
		"Accept: */*", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 192.0.2.1, 127.0.0.1", "x-forwarded-for: 127.0.0.1",
		"X-Real-IP: 192.0.2.2", "Forwarded: for=192.0.2.3", "X-Forwarded-For: \"", "X-Forwarded-For: ,,,",
		"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2", "X-Client-IP: 192.0.2.1", "Connection: X-Forwarded-For",
	} {
		if a := c.ask("GET", "/reports/x", lie); a.Status != 429 || a.Passed() {
			t.Errorf("%s: %v", lie, a)
		}
	}
	if a := p.client(t, 4).ask("GET", "/reports/1", "X-Forwarded-For: 127.0.0.3"); a.Status != 200 {
		t.Errorf("another address: %v", a)
	}
}

// testUncountable checks that requests without a usable key or path are rejected with a client error.
func testUncountable(t *testing.T, p Proxy) {
	c := p.client(t, 2)
	for name, a := range map[string]*Answer{
		"a key twice":       c.ask("POST", "/posts", "X-Api-Key: twice", "X-Api-Key: twice2"),
		"a path in doubt":   c.ask("POST", "/a%2fposts", "X-Api-Key: path"),
		"a path in doubt 2": c.ask("GET", "/a;b/posts"),
	} {
		if b := a.problem(t); a.Status != 400 || a.Passed() || b.Status != 400 {
			t.Errorf("%s: %v", name, a)
		}
	}
	long := c.ask("POST", "/posts", "X-Api-Key: "+strings.Repeat("k", 9000))
	if long.Status != 400 && long.Status != 431 || long.Passed() { // nginx itself rejects a line of this length
		t.Errorf("a key of 9,000 bytes: %v", long)
	}
}

// CheckAway checks the responses while Sluice is unavailable. A proxy that fails open forwards requests that would be
// denied.
func (p Proxy) CheckAway(t *testing.T, open bool) {
	t.Helper()
	for _, a := range p.atOnce(t, limit+2, "POST", "/posts", "X-Api-Key: away") {
		if open && (a.Status != 200 || !a.Passed()) || !open && (a.Status < 500 || a.Passed()) {
			t.Errorf("open is %v: %v", open, a)
		}
		for name := range a.Header {
			if strings.Contains(name, "Ratelimit") {
				t.Errorf("%s is set though nothing was counted", name)
			}
		}
	}
}

// CheckClosed checks for status 503 with a rule that fails closed while the store is unavailable: an unavailable store
// is different from an unavailable Sluice.
func (p Proxy) CheckClosed(t *testing.T) {
	t.Helper()
	a := p.client(t, 2).ask("POST", "/posts", "X-Api-Key: closed")
	if b := a.problem(t); a.Status != http.StatusServiceUnavailable || a.Passed() || b.Status != a.Status {
		t.Errorf("got %v", a)
	}
	if a.Header.Get("X-Ratelimit-Degraded") != "closed" || a.Header.Get("Retry-After") == "" {
		t.Errorf("headers are %v", a.Header)
	}
}
