package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
)

func TestKeysAreSeparate(t *testing.T) {
	h := httplimit.Middleware(limiter(newClock().store(), rule("api", sluice.PerMinute(1))), httplimit.ByHeader("X-User"))(ok)
	for i, step := range []struct {
		user string
		want int
	}{{"alice", 200}, {"alice", 429}, {"bob", 200}, {"bob", 429}, {"", 200}, {"", 429}} {
		if got := serve(h, request(header("X-User", step.user))).StatusCode; got != step.want {
			t.Errorf("step %d, user %q: status %d, want %d", i, step.user, got, step.want)
		}
	}
	// Leaving out the header does not bypass the limit.
	if a, b := serve(h, request()).StatusCode, serve(h, request()).StatusCode; a != 200 || b != 429 {
		t.Errorf("without the header: %d and %d, want 200 and 429", a, b)
	}
}

func TestRefill(t *testing.T) {
	c := newClock()
	h := httplimit.Middleware(limiter(c.store(), rule("api", sluice.PerMinute(2))), httplimit.ByIP())(ok)
	serve(h, request())
	serve(h, request())
	denied := serve(h, request())
	after, err := strconv.Atoi(denied.Header.Get("Retry-After"))
	if denied.StatusCode != 429 || err != nil || after < 1 {
		t.Fatalf("status %d, Retry-After %q", denied.StatusCode, denied.Header.Get("Retry-After"))
	}
	c.now = c.now.Add(time.Duration(after) * time.Second)
	if got := serve(h, request()).StatusCode; got != 200 {
		t.Errorf("status %d after waiting for Retry-After, want 200", got)
	}
}

func TestRepeatedHeader(t *testing.T) {
	h := httplimit.Middleware(limiter(newClock().store(), rule("api", sluice.PerMinute(1))), httplimit.ByHeader("X-User"))(ok)
	got := serve(h, request(header("X-User", "a", "b")))
	if got.StatusCode != 400 || got.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("status %d, type %q; want 400 and a problem", got.StatusCode, got.Header.Get("Content-Type"))
	}
}

func TestErrors(t *testing.T) {
	broken := errors.New("secret inside")
	var seen error
	report := httplimit.ErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
		seen = err
		w.WriteHeader(http.StatusTeapot)
	})
	badKey := func(*http.Request) (string, error) { return "", broken }
	badCost := httplimit.Cost(func(*http.Request) int64 { return -1 })
	badLimit := httplimit.LimitFor(func(*http.Request) *sluice.Limit { return &sluice.Limit{Count: 1} })
	tests := []struct {
		name string
		key  httplimit.KeyFunc
		opts []httplimit.Option
		want error
	}{
		{"key", badKey, nil, broken},
		{"cost", httplimit.ByIP(), []httplimit.Option{badCost}, sluice.ErrInvalid},
		{"limit", httplimit.ByIP(), []httplimit.Option{badLimit}, sluice.ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := limiter(newClock().store(), rule("api", sluice.PerMinute(1)))
			reached := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("an undecided request was served") })
			w := httptest.NewRecorder()
			httplimit.Middleware(l, tt.key, tt.opts...)(reached).ServeHTTP(w, request())
			if w.Code != 500 || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("status %d, body %s; want 500 without internal details", w.Code, w.Body)
			}
			seen = nil
			got := serve(httplimit.Middleware(l, tt.key, append(tt.opts, report)...)(reached), request())
			if got.StatusCode != http.StatusTeapot || !errors.Is(seen, tt.want) {
				t.Errorf("OnError: status %d, error %v; want %v", got.StatusCode, seen, tt.want)
			}
		})
	}
}

// TestClientGone: a request whose context is done is neither served nor reported as an error.
func TestClientGone(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	opts := httplimit.ErrorHandler(func(http.ResponseWriter, *http.Request, error) { t.Error("reported as an error") })
	for _, rules := range [][]*sluice.Rule{
		{rule("api", sluice.PerMinute(1))},
		{rule("api", sluice.PerMinute(1)), rule("day", sluice.PerDay(10))},
	} {
		h := httplimit.Middleware(limiter(memstore.New(), rules...), httplimit.ByIP(), opts)(ok)
		if got := serve(h, request().WithContext(ctx)).StatusCode; got != 499 {
			t.Errorf("status %d, want 499", got)
		}
	}
}

func TestSkipAndCost(t *testing.T) {
	h := httplimit.Middleware(limiter(newClock().store(), rule("api", sluice.PerMinute(10))), httplimit.ByIP(),
		httplimit.Skip(func(r *http.Request) bool { return r.URL.Path == "/health" }),
		httplimit.Cost(func(r *http.Request) int64 {
			n, _ := strconv.ParseInt(r.Header.Get("Cost"), 10, 64)
			return n
		}))(ok)
	do := func(path, cost string) *http.Response {
		r := request(header("Cost", cost))
		r.URL.Path = path
		return serve(h, r)
	}
	for i, step := range []struct {
		path, cost string
		status     int
		remaining  string
	}{
		{"/", "4", 200, "6"},
		{"/health", "4", 200, ""},
		{"/", "7", 429, "6"}, // all or nothing
		{"/", "6", 200, "0"},
		{"/", "0", 200, "0"}, // a cost of 0 is allowed without remaining quota
		{"/", "1", 429, "0"},
	} {
		got := do(step.path, step.cost)
		if got.StatusCode != step.status || got.Header.Get("X-Ratelimit-Remaining") != step.remaining {
			t.Errorf("step %d: status %d, remaining %q; want %d, %q", i,
				got.StatusCode, got.Header.Get("X-Ratelimit-Remaining"), step.status, step.remaining)
		}
	}
}

func TestCostFreeSeveralRules(t *testing.T) {
	h := httplimit.Middleware(limiter(newClock().store(), rule("a", sluice.PerMinute(1)), rule("b", sluice.PerDay(1))), httplimit.ByIP(),
		httplimit.Cost(func(r *http.Request) int64 { return int64(len(r.Header["Cost"])) }))(ok)
	for i, step := range []struct {
		cost   []string
		status int
	}{{[]string{"1"}, 200}, {[]string{"1"}, 429}, {nil, 200}} {
		if got := serve(h, request(header("Cost", step.cost...))).StatusCode; got != step.status {
			t.Errorf("step %d: status %d, want %d", i, got, step.status)
		}
	}
}

func TestLimitFor(t *testing.T) {
	gold := sluice.Must(sluice.PerHour(3).Build())
	h := httplimit.Middleware(limiter(newClock().store(), rule("api", sluice.PerMinute(1))), httplimit.ByHeader("X-User"),
		httplimit.LimitFor(func(r *http.Request) *sluice.Limit {
			if r.Header.Get("X-User") == "gold" {
				return gold
			}
			return nil
		}))(ok)
	for user, want := range map[string]struct {
		allowed int
		policy  string
	}{"gold": {3, `"api";q=3;w=3600`}, "tin": {1, `"api";q=1;w=60`}} {
		allowed := 0
		for range 5 {
			got := serve(h, request(header("X-User", user)))
			if got.StatusCode == 200 {
				allowed++
			}
			if p := got.Header.Get("Ratelimit-Policy"); p != want.policy {
				t.Errorf("%s: policy %s, want %s", user, p, want.policy)
			}
		}
		if allowed != want.allowed {
			t.Errorf("%s: %d allowed, want %d", user, allowed, want.allowed)
		}
	}
}

// TestLimiterWithLimitFor: limits that the limiter chooses by key are applied and sent in the headers.
func TestLimiterWithLimitFor(t *testing.T) {
	gold := sluice.Must(sluice.PerHour(3).Build())
	l := sluice.Must(sluice.New(newClock().store(), "api", sluice.PerMinute(1),
		sluice.WithLimitFor(func(context.Context, string) *sluice.Limit { return gold })))
	for name, opts := range map[string][]httplimit.Option{
		"plain":    nil,
		"reserved": {httplimit.ChargeIf(func(int) bool { return false })},
	} {
		h := httplimit.Middleware(l, httplimit.ByIP(), opts...)(ok)
		got := serve(h, request())
		if p, r := got.Header.Get("Ratelimit-Policy"), got.Header.Get("Ratelimit"); p != `"api";q=3;w=3600` || r != `"api";r=2;t=2400` {
			t.Errorf("%s: Ratelimit-Policy %s, Ratelimit %s; want those of the chosen limit", name, p, r)
		}
		if err := l.Reset(context.Background(), "192.0.2.1"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOnDenied(t *testing.T) {
	l := limiter(newClock().store(), rule("minute", sluice.PerMinute(1)), rule("day", sluice.PerDay(1)))
	h := httplimit.Middleware(l, httplimit.ByIP(), httplimit.DenialHandler(
		func(w http.ResponseWriter, _ *http.Request, d *httplimit.Denial) {
			after, never := d.RetryAfter()
			w.WriteHeader(d.Status)
			fmt.Fprint(w, d.Rules[d.MostRestrictive].Name, " ", after, " ", never, " ", len(d.Decisions))
		}))(ok)
	serve(h, request())
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request())
	if w.Code != 429 || w.Body.String() != "day 24h0m0s false 2" || w.Header().Get("Retry-After") != "86400" {
		t.Errorf("status %d, body %q, Retry-After %q", w.Code, w.Body, w.Header().Get("Retry-After"))
	}
}

func TestResetEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		window := sluice.PerMinute(1).WithAlgorithm(sluice.FixedWindow)
		h := httplimit.Middleware(limiter(memstore.New(), rule("api", window)), httplimit.ByIP(), httplimit.ResetAsUnixTime())(ok)
		<-time.After(1500 * time.Millisecond)
		end := time.Now().Truncate(time.Minute).Add(time.Minute)
		for range 2 {
			got := serve(h, request()).Header.Get("X-Ratelimit-Reset")
			if got != strconv.FormatInt(end.Unix(), 10) {
				t.Errorf("reset %s, want %d", got, end.Unix())
			}
		}

		// The time is rounded up: the clock of the bubble is at x.5, and 1.7 s later is x+2.2.
		w, l := httptest.NewRecorder(), limiter(memstore.New(), rule("api", sluice.PerMinute(1)))
		d := sluice.Decision{Allowed: true, Limit: 1, ResetAfter: 1700 * time.Millisecond}
		httplimit.SetQuotaHeaders(w, request(), l.Rules(), []sluice.Decision{d}, httplimit.ResetAsUnixTime())
		if got, want := w.Header().Get("X-Ratelimit-Reset"), strconv.FormatInt(time.Now().Unix()+3, 10); got != want {
			t.Errorf("reset %s, want %s", got, want)
		}
	})
}

// TestBlocked: the headers for a blocked key contain no time before the end of the block.
func TestBlocked(t *testing.T) {
	l := limiter(newClock().store(), rule("api", sluice.PerMinute(100)))
	h := httplimit.Middleware(l, httplimit.ByIP())(ok)
	if err := l.Block(context.Background(), "192.0.2.1", time.Hour); err != nil {
		t.Fatal(err)
	}
	got := serve(h, request())
	if got.StatusCode != 429 || got.Header.Get("Retry-After") != "3600" || got.Header.Get("X-Ratelimit-Reset") != "3600" {
		t.Errorf("status %d, headers %v; want 429 for an hour", got.StatusCode, got.Header)
	}

	// The ResetAfter of a store may refer to usage only and be before the end of the block.
	w := httptest.NewRecorder()
	d := sluice.Decision{Limit: 100, Remaining: 99, RetryAfter: time.Hour, ResetAfter: time.Second}
	httplimit.WriteDenial(w, request(), l.Rules(), []sluice.Decision{d})
	if got := w.Header().Get("X-Ratelimit-Reset"); got != "3600" {
		t.Errorf("reset %s before the end of the block", got)
	}
}

func TestDegradedLocal(t *testing.T) {
	h := httplimit.Middleware(limiter(downStore, rule("api", sluice.PerMinute(1))), httplimit.ByIP())(ok)
	for _, want := range []int{200, 429} {
		got := serve(h, request())
		if got.StatusCode != want || got.Header.Get("X-Ratelimit-Degraded") != "local" || got.Header.Get("X-Ratelimit-Remaining") != "0" {
			t.Errorf("status %d, headers %v; want %d with a local quota", got.StatusCode, got.Header, want)
		}
	}
}

// TestNested: with nested middlewares the headers show the lower quota and list all policies.
func TestNested(t *testing.T) {
	for _, tt := range []struct {
		outer, inner int64
		limit        string
	}{{100, 10, "10"}, {10, 100, "10"}} {
		outer := httplimit.Middleware(limiter(newClock().store(), rule("all", sluice.PerMinute(tt.outer))), httplimit.Global())
		inner := httplimit.Middleware(limiter(newClock().store(), rule("ip", sluice.PerMinute(tt.inner))), httplimit.ByIP())
		got := serve(outer(inner(ok)), request())
		if l := got.Header["X-Ratelimit-Limit"]; !slices.Equal(l, []string{tt.limit}) {
			t.Errorf("outer %d, inner %d: limit %v, want %s", tt.outer, tt.inner, l, tt.limit)
		}
		if p := got.Header["Ratelimit-Policy"]; len(p) != 2 || len(got.Header["Ratelimit"]) != 2 {
			t.Errorf("policies %v, want both", p)
		}
	}
}

// TestExposeHeaders: values are added to those that CORS middleware has set, without writing to its slice, which requests
// may share.
func TestExposeHeaders(t *testing.T) {
	shared := make([]string, 1, 4)
	shared[0] = "X-Total"
	cors := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Access-Control-Expose-Headers"] = shared
			next.ServeHTTP(w, r)
		})
	}
	h := cors(httplimit.Middleware(limiter(newClock().store(), rule("api", sluice.PerMinute(9))), httplimit.ByIP())(ok))
	got := serve(h, request(header("Origin", "https://app.example"))).Header["Access-Control-Expose-Headers"]
	if len(got) != 2 || got[0] != "X-Total" || !strings.Contains(got[1], "X-Ratelimit-Remaining, ") {
		t.Errorf("exposed %q", got)
	}
	if spare := shared[:2]; spare[1] != "" {
		t.Errorf("wrote %q into the other middleware's slice", spare[1])
	}
	if got := serve(h, request()).Header["Access-Control-Expose-Headers"]; len(got) != 1 {
		t.Errorf("without an Origin exposed %q", got)
	}
}

// TestHeadersAreOwn: a handler that changes or appends to a header changes no other header and no later response.
func TestHeadersAreOwn(t *testing.T) {
	h := httplimit.Middleware(limiter(newClock().store(), rule("api", sluice.PerMinute(9))), httplimit.ByIP())(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for name, values := range w.Header() {
				values[0] += "!"
				w.Header()[name] = append(values, "more")
			}
		}))
	serve(h, request())
	for name, values := range serve(h, request()).Header {
		if len(values) != 2 || strings.Count(values[0], "!") != 1 || values[1] != "more" {
			t.Errorf("%s: %q", name, values)
		}
	}
}

func TestMiddlewareWrongUse(t *testing.T) {
	one := limiter(memstore.New(), rule("a", sluice.PerMinute(1)))
	two := limiter(memstore.New(), rule("a", sluice.PerMinute(1)), rule("b", sluice.PerMinute(1)))
	any := func(*http.Request) *sluice.Limit { return nil }
	for name, f := range map[string]func(){
		"nil limiter":       func() { httplimit.Middleware(nil, httplimit.ByIP()) },
		"nil key":           func() { httplimit.Middleware(one, nil) },
		"no rules":          func() { httplimit.Middleware(limiter(memstore.New()), httplimit.ByIP()) },
		"limit for several": func() { httplimit.Middleware(two, httplimit.ByIP(), httplimit.LimitFor(any)) },
		"families": func() {
			httplimit.Middleware(one, httplimit.ByIP(), httplimit.Headers(httplimit.HeadersXRateLimit|httplimit.HeadersDraft03))
		},
		"no wait":     func() { httplimit.MaxDelay(0) },
		"no decision": func() { httplimit.WriteDenial(httptest.NewRecorder(), request(), nil, nil) },
	} {
		mustPanic(t, name, f)
	}
}
