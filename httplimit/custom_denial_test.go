package httplimit_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// A rule configures the response to its denials: status, message, or the whole body. The headers do not change.
func TestRulesDenialResponse(t *testing.T) {
	const wait = "30" // seconds until 2/min allows a request again
	for name, c := range map[string]struct {
		change func(r *rules.Rule)
		grpc   bool
		status int
		typ    string
		want   string // the body, or the detail of a problem
	}{
		"default":     {func(*rules.Rule) {}, false, 429, "application/problem+json", "Rate limit posts exceeded; retry in 30 s."},
		"status":      {func(r *rules.Rule) { r.Denial.Status = 403 }, false, 403, "application/problem+json", "Rate limit posts exceeded; retry in 30 s."},
		"message":     {func(r *rules.Rule) { r.Denial.Message = "{rule}: {limit}, wait {retry_after} s" }, false, 429, "application/problem+json", "posts: 2/min, wait 30 s"},
		"body":        {func(r *rules.Rule) { r.Denial.Body = "wait {retry_after}\n" }, false, 429, "text/plain; charset=utf-8", "wait 30\n"},
		"other words": {func(r *rules.Rule) { r.Denial.Body = "{} {Rule} { rule } {rule" }, false, 429, "text/plain; charset=utf-8", "{} {Rule} { rule } {rule"},
		"escaped": {func(r *rules.Rule) {
			r.Name, r.Denial.Body, r.Denial.ContentType = "a&b<c", "<b>{rule}</b>", "text/html"
		}, false, 429, "text/html", "<b>a&amp;b&lt;c</b>"},
		"gRPC": {func(r *rules.Rule) { r.Denial.Status, r.Denial.Body = 403, "x" }, true, 429, "application/problem+json", "Rate limit posts exceeded; retry in 30 s."},
		"never": {func(r *rules.Rule) {
			r.Cost, r.Denial.Message = rules.Cost{Default: 5}, "x"
		}, false, 429, "application/problem+json", "The request costs more than rate limit posts allows at once; no retry can succeed."},
	} {
		synctest.Test(t, func(t *testing.T) {
			rule := perUser("posts", sluice.PerMinute(2))
			c.change(&rule)
			h := byRules(memstore.New(), rules.Config{Rules: []rules.Rule{rule}})
			var got *http.Response
			for range 3 {
				r := post("/posts")
				if c.grpc {
					r.Header.Set("Content-Type", "application/grpc")
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				got = w.Result()
			}
			text := body(t, got)
			if c.typ == "application/problem+json" {
				var problem struct {
					Status int
					Detail string
				}
				if err := json.Unmarshal([]byte(text), &problem); err != nil || problem.Status != c.status {
					t.Errorf("%s: %v: %s", name, err, text)
				}
				text = problem.Detail
			}
			if got.StatusCode != c.status || got.Header.Get("Content-Type") != c.typ || text != c.want {
				t.Errorf("%s: %d %q\n got %q\nwant %q", name, got.StatusCode, got.Header.Get("Content-Type"), text, c.want)
			}
			if after := got.Header.Get("Retry-After"); name != "never" && after != wait || got.Header.Get("X-Ratelimit-Limit") != "2" {
				t.Errorf("%s: headers %v", name, got.Header)
			}
		})
	}
}

// {limit} expands to count and window, without the algorithm.
func TestRulesDenialLimit(t *testing.T) {
	for want, limit := range map[string]sluice.Limit{
		"1/min":                   sluice.PerMinute(1),
		"3/min":                   sluice.PerMinute(3).WithInitial(1),
		"1/h":                     sluice.PerHour(1).WithAlgorithm(sluice.FixedWindow),
		"1/s":                     sluice.PerSecond(1).WithAlgorithm(sluice.SlidingWindowLog),
		"1/week":                  sluice.PerWeek(1).WithAlgorithm(sluice.SlidingWindowCounter),
		"1/2h":                    sluice.Per(1, 2*time.Hour).WithAlgorithm(sluice.LeakyBucket),
		"1/calendar month in UTC": sluice.PerCalendar(1, sluice.CalendarMonth, nil),
		"2/day":                   sluice.PerDay(2).WithBurst(1).WithAlgorithm(sluice.LeakyBucket),
		"1/3h":                    sluice.Per(1, 3*time.Hour).WithAlgorithm(sluice.FixedWindow).WithSoftExcess(1, 10*time.Second),
		"1 concurrent":            {Count: 1, Algorithm: sluice.Concurrency, Window: time.Minute},
	} {
		rule := perUser("posts", limit)
		rule.Denial.Body = "{limit}"
		h := byRules(memstore.New(), rules.Config{Rules: []rules.Rule{rule}})
		if limit.Algorithm == sluice.Concurrency {
			set := sluice.Must(rules.New(rules.Config{Rules: []rules.Rule{rule}}))
			var inner http.Handler
			nested := false
			inner = httplimit.RulesMiddleware(sluice.Must(sluice.NewWithRules(memstore.New(), nil)), func() *rules.Set { return set })(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) {
					if !nested {
						nested = true
						inner.ServeHTTP(w, post("/posts"))
					}
				}))
			h = inner
		}
		got := ""
		for range 3 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, post("/posts"))
			if w.Code == http.StatusTooManyRequests || limit.Algorithm == sluice.Concurrency {
				got = w.Body.String()
				break
			}
		}
		if got != want {
			t.Errorf("%v: {limit} is %q, want %q", limit, got, want)
		}
	}
}

// Of several denying rules, the most restrictive one determines the response; fail closed sends the default response.
func TestRulesDenialResponseOfSeveral(t *testing.T) {
	minute, hour := perUser("minute", sluice.PerMinute(1)), perUser("hour", sluice.PerHour(1))
	minute.Denial.Message, hour.Denial.Message = "minute", "hour"
	h := byRules(memstore.New(), rules.Config{Rules: []rules.Rule{minute, hour}})
	var w *httptest.ResponseRecorder
	for range 2 {
		w = httptest.NewRecorder()
		h.ServeHTTP(w, post("/"))
	}
	var problem struct{ Detail string }
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || problem.Detail != "hour" {
		t.Errorf("%v: %s", err, w.Body)
	}
	hour.OnFailure, hour.Denial.Status = sluice.FailClosed, 403
	h = byRules(awayStore{}, rules.Config{Rules: []rules.Rule{hour}})
	w = httptest.NewRecorder()
	if h.ServeHTTP(w, post("/")); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a store that is unavailable: %d %s", w.Code, w.Body)
	}
}
