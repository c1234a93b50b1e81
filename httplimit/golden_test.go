package httplimit_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
)

var update = flag.Bool("update", false, "write testdata instead of comparing with it")

// clock is a clock that tests set.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Date(2026, 1, 2, 3, 4, 17, 620_000_000, time.UTC)} }

func (c *clock) store() *memstore.Store {
	return sluice.Must(memstore.Open(memstore.Config{Now: func() time.Time { return c.now }}))
}

// storeFunc is a store whose decisions a function makes.
type storeFunc func(takes []sluice.Take, out []sluice.Decision) error

func (f storeFunc) Apply(_ context.Context, takes []sluice.Take, out []sluice.Decision) error {
	return f(takes, out)
}

var downStore = storeFunc(func([]sluice.Take, []sluice.Decision) error { return sluice.ErrUnavailable })

func rule(name string, limit sluice.Limit, edit ...func(*sluice.Rule)) *sluice.Rule {
	r := sluice.Rule{Name: name, Limit: limit}
	for _, e := range edit {
		e(&r)
	}
	return sluice.Must(sluice.NewRule(r))
}

func shadow(r *sluice.Rule)     { r.Shadow = true }
func failOpen(r *sluice.Rule)   { r.OnFailure = sluice.FailOpen }
func failClosed(r *sluice.Rule) { r.OnFailure = sluice.FailClosed }

func limiter(store sluice.Store, rules ...*sluice.Rule) *sluice.Limiter {
	return sluice.Must(sluice.NewWithRules(store, rules))
}

// ok is a handler that responds with 200.
var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "hello")
})

// serve runs one request and returns the response.
func serve(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// perMinute ends with the minute, so that RetryAfter is not a whole number of seconds.
var perMinute = sluice.PerMinute(2).WithAlgorithm(sluice.FixedWindow)

var goldenCases = []struct {
	name  string
	times int // number of requests before the recorded one
	store sluice.Store
	rules []*sluice.Rule
	opts  []httplimit.Option
	path  string
	edit  func(*http.Request)
	block time.Duration // block of the key after those requests
}{
	{name: "allowed by a fixed window", rules: []*sluice.Rule{rule("peruser", perMinute)}},
	{name: "denied by a fixed window", times: 2, rules: []*sluice.Rule{rule("peruser", perMinute)}},
	{name: "allowed by a token bucket", times: 3, rules: []*sluice.Rule{rule("api", sluice.PerMinute(100))}},
	{name: "denied by a token bucket", times: 100, rules: []*sluice.Rule{rule("api", sluice.PerMinute(100))}},
	{name: "last of a token bucket", times: 99, rules: []*sluice.Rule{rule("api", sluice.PerMinute(100))}},
	{name: "allowed by several rules", times: 1, rules: []*sluice.Rule{rule("second", sluice.PerSecond(10)), rule("day", sluice.PerDay(5000))}},
	{name: "denied by one of several rules", times: 2, rules: []*sluice.Rule{rule("burst", perMinute), rule("day", sluice.PerDay(5000))}},
	{name: "denied by two rules", times: 2, rules: []*sluice.Rule{rule("minute", perMinute), rule("hour", sluice.PerHour(2))}},
	{name: "shadow rule would deny", times: 2, rules: []*sluice.Rule{rule("trial", perMinute, shadow)}},
	{
		name: "cost exceeds limit", rules: []*sluice.Rule{rule("api", sluice.PerMinute(100))},
		opts: []httplimit.Option{httplimit.Cost(func(*http.Request) int64 { return 101 })},
	},
	{
		name: "cost larger than the rest", times: 1, rules: []*sluice.Rule{rule("api", sluice.PerMinute(3).WithAlgorithm(sluice.FixedWindow))},
		opts: []httplimit.Option{httplimit.Cost(func(*http.Request) int64 { return 2 })},
	},
	{name: "soft limit", times: 2, rules: []*sluice.Rule{rule("soft", perMinute.WithSoftExcess(2, 10*time.Second))}},
	{name: "blocked", times: 1, rules: []*sluice.Rule{rule("peruser", perMinute)}, block: 90 * time.Second},
	{name: "everything denied", rules: []*sluice.Rule{rule("none", sluice.PerMinute(0).WithAlgorithm(sluice.FixedWindow))}},
	{name: "calendar window", rules: []*sluice.Rule{rule("daily", sluice.PerCalendar(10, sluice.CalendarDay, nil))}},
	{name: "sliding log", times: 1, rules: []*sluice.Rule{rule("log", sluice.PerMinute(10).WithAlgorithm(sluice.SlidingWindowLog))}},
	{name: "sliding counter used up", times: 9, rules: []*sluice.Rule{rule("sc", sluice.PerMinute(10).WithAlgorithm(sluice.SlidingWindowCounter))}},
	{name: "store unavailable, fail open", store: downStore, rules: []*sluice.Rule{rule("api", perMinute, failOpen)}},
	{name: "store unavailable, fail closed", store: downStore, rules: []*sluice.Rule{rule("api", perMinute, failClosed)}},
	{
		name: "draft 03", times: 2, rules: []*sluice.Rule{rule("minute", perMinute), rule("day", sluice.PerDay(5000))},
		opts: []httplimit.Option{httplimit.Headers(httplimit.HeadersDraft03)},
	},
	{
		name: "no quota headers", times: 2, rules: []*sluice.Rule{rule("minute", perMinute)},
		opts: []httplimit.Option{httplimit.Headers(0)},
	},
	{
		name: "other origin", times: 2, rules: []*sluice.Rule{rule("minute", perMinute)},
		edit: header("Origin", "https://app.example"),
	},
	{name: "odd rule name", times: 2, rules: []*sluice.Rule{rule("été \"x\\y\"\r\n<b>", perMinute)}},
	{name: "odd path", times: 2, rules: []*sluice.Rule{rule("minute", perMinute)}, path: `//evil.example/a%22%0d%0a<b>?token=secret`},
	{name: "long path", times: 2, rules: []*sluice.Rule{rule("minute", perMinute)}, path: "/a" + strings.Repeat("%C3%A9", 60)},
}

// TestGolden compares whole responses, byte for byte.
func TestGolden(t *testing.T) {
	user := httplimit.ByHeader("X-User")
	var got bytes.Buffer
	for _, c := range goldenCases {
		store := c.store
		if store == nil {
			store = newClock().store()
		}
		l := limiter(store, c.rules...)
		h := httplimit.Middleware(l, user, c.opts...)(ok)
		path := c.path
		if path == "" {
			path = "/posts?token=secret"
		}
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("X-User", "alice-secret")
		if c.edit != nil {
			c.edit(r)
		}
		for range c.times {
			serve(h, r)
		}
		if err := l.Block(t.Context(), "alice-secret", c.block); c.block > 0 && err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "-- %s --\n", c.name)
		if err := serve(h, r).Write(&got); err != nil {
			t.Fatal(err)
		}
		got.WriteString("\n")
	}
	if bytes.Contains(got.Bytes(), []byte("secret")) {
		t.Error("a response contains the key or the query")
	}
	compareGolden(t, "testdata/responses.txt", got.Bytes())
}

func compareGolden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	gots, wants := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	section := ""
	for i := range max(len(gots), len(wants)) {
		var g, w string
		if i < len(gots) {
			g = gots[i]
		}
		if i < len(wants) {
			w = wants[i]
		}
		if strings.HasPrefix(w, "-- ") {
			section = w
		}
		if g != w {
			t.Fatalf("%s:%d, %s\n got %q\nwant %q\nIf this is meant: go test ./httplimit -run Golden -update", file, i+1, section, g, w)
		}
	}
}
