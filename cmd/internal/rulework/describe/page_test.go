package describe

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

func TestLimitInWords(t *testing.T) {
	fixed := func(l sluice.Limit) sluice.Limit { return l.WithAlgorithm(sluice.FixedWindow) }
	for want, limit := range map[string]sluice.Limit{
		"2 per second, bursts of 2":                              sluice.PerSecond(2),
		"10,000 per second, bursts of 20,000":                    sluice.PerSecond(10_000).WithBurst(20_000),
		"100 per minute, bursts of 100, starting with 10":        sluice.PerMinute(100).WithInitial(10),
		"100 per minute, bursts of 100, starting with 0":         sluice.PerMinute(100).WithInitial(0),
		"100 per minute, bursts of 100":                          sluice.PerMinute(100).WithInitial(100),
		"300 per 3 hours, bursts of 300":                         sluice.Per(300, 3*time.Hour),
		"5 per week":                                             fixed(sluice.PerWeek(5)),
		"5 per day from the first request":                       fixed(sluice.PerDay(5)).WithAlign(sluice.AlignFirstRequest),
		"2 in any minute":                                        sluice.PerMinute(2).WithAlgorithm(sluice.SlidingWindowLog),
		"7 in any 90 seconds":                                    sluice.Per(7, 90*time.Second).WithAlgorithm(sluice.SlidingWindowCounter),
		"1 per second, up to 2 delayed":                          sluice.PerSecond(1).WithBurst(3).WithAlgorithm(sluice.LeakyQueue),
		"10 per minute, plus 2 for up to 10 seconds":             fixed(sluice.PerMinute(10)).WithSoftExcess(2, 10*time.Second),
		"1,000 per calendar month (UTC)":                         sluice.PerCalendar(1000, sluice.CalendarMonth, nil),
		"4 per minute, added all at once, at most 4 accumulated": {Count: 4, Window: time.Minute, Refill: sluice.RefillInterval},
		"1 per 1.5ms, bursts of 1":                               sluice.Every(1500 * time.Microsecond),
		"1,234,567 per 366 days, bursts of 1,234,567":            sluice.Per(1_234_567, 366*24*time.Hour),
	} {
		if got := limitText(limit, &rules.Rule{}); got != want {
			t.Errorf("%v: %q, want %q", limit, got, want)
		}
	}
}

// The page states the number of delayed requests: as many as the middleware delays of those that arrive at the same
// moment.
func TestWaitingInWords(t *testing.T) {
	for rule, want := range map[string]string{
		"limit: {rate: 2/s, burst: 4}":                                           "2 per second, up to 3 delayed",
		"limit: {rate: 2/s, burst: 4}, max_delay: 1s":                            "2 per second, up to 2 delayed, by 1 second at most",
		"limit: {rate: 2/s, burst: 4}, max_delay: 1m":                            "2 per second, up to 3 delayed",
		"limit: {rate: 2/s, burst: 1}":                                           "2 per second, none delayed",
		"limit: {rate: 2/s, burst: 4}, max_delay: 100ms":                         "2 per second, none delayed",
		"limit: {rate: 2/s, burst: 4, algorithm: token_bucket}, max_delay: 1s":   "2 per second, bursts of 4, then delayed by about 1 second at most",
		"limit: {rate: 2/s, burst: 4, algorithm: leaky_bucket}, max_delay: 2s":   "2 per second, bursts of 4, then delayed by about 2 seconds at most",
		"limit: {rate: 2/s, burst: 6}, cost: 2":                                  "2 per second, up to 2 delayed",
		"limit: {rate: 2/s, burst: 6}, cost: 2, max_delay: 1s":                   "2 per second, up to 1 delayed, by 1 second at most",
		"limit: {rate: 2/s, burst: 4, algorithm: token_bucket}, max_delay: 10ms": "2 per second, bursts of 4",
	} {
		set := setOf(t, "rules: [{name: r, on_limit: delay, "+rule+"}]")
		got := NewPage(set, "").Limits[0].Limit
		if got != want {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
		if strings.Contains(got, "bursts") {
			continue // the page has no number
		}
		waiting := 0
		if _, text, ok := strings.Cut(got, "up to "); ok {
			if _, err := fmt.Sscan(text, &waiting); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			limiter := sluice.Must(sluice.NewWithRules(memstore.New(), nil))
			h := httplimit.RulesMiddleware(limiter, func() *rules.Set { return set })(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			var delayed atomic.Int64
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
					if w.Header().Get("X-Ratelimit-Delay") != "" && w.Code == http.StatusOK {
						delayed.Add(1)
					}
				})
			}
			group.Wait()
			if int(delayed.Load()) != waiting {
				t.Errorf("%s: %d were delayed, the page says %s", rule, delayed.Load(), got)
			}
		})
	}
}

// The page describes the responses to requests over a limit: the statuses of the rules, which of them have a custom
// body, and that a request without an attribute of the key gets 403.
func TestDenialsAreTold(t *testing.T) {
	for _, test := range []struct {
		rules string
		want  []string
		not   []string
	}{
		{
			"[{name: a, match: {path: /a}, limit: 1/min}]",
			[]string{"gets 429 Too Many Requests and is not processed", "in its headers and as JSON in its body", "Retry-After 429 same as X-Ratelimit-Retry-After"},
			[]string{"403", "custom"},
		},
		{
			"[{name: a, match: {path: /a}, limit: 1/min, denial: {status: 403}}]",
			[]string{
				"gets 403 Forbidden and is not processed", "in its headers and as JSON in its body",
				"HTTP/1.1 403 Forbidden", "Retry-After 403 same as X-Ratelimit-Retry-After", "on 403, until a retry can succeed",
			},
			[]string{"429"},
		},
		{
			"[{name: a, match: {path: /a}, limit: 1/min, denial: {status: 403, body: later}}, {name: b, match: {path: /b}, limit: 1/min}]",
			[]string{
				"Notes        requests over the limit get 403 Forbidden and a custom body",
				"gets 429 Too Many Requests, or 403 Forbidden where noted, and is not processed",
				"HTTP/1.1 403 Forbidden", "HTTP/1.1 429 Too Many Requests", "\n    later\n", "Retry-After 403, 429 same as X-Ratelimit-Retry-After", "on 403 or 429, until",
				"in its headers, and as JSON in its body unless the limit has a custom body",
			},
			nil,
		},
		{
			"[{name: a, match: {path: /a}, limit: 1/min, denial: {status: 429, body: later}}]",
			[]string{"Notes        requests over the limit get a custom body", "in its headers. Responses"},
			[]string{"as JSON"},
		},
		{
			"[{name: a, match: {path: /a}, per: ['header:X-User', ip], on_missing: reject, limit: 1/min}]",
			[]string{"Notes        requests without the value of the header X-User or the address get 403 Forbidden"},
			nil,
		},
		{
			"[{name: a, match: {path: /a}, per: 'header:X-User', on_missing: reject, limit: 1/min, description: x}, {name: b, match: {path: /b}, on_missing: reject, limit: 1/min}]",
			[]string{"requests without the value of the header X-User get 403 Forbidden"},
			nil,
		},
		{
			"[{name: a, match: {path: /a}, limit: 5/h, cost: {header: X-Cost}, denial: {status: 403}}]",
			[]string{"A request whose cost exceeds a limit gets 429 Too Many Requests", "absent if no retry can"},
			nil,
		},
	} {
		var b strings.Builder
		if err := NewPage(setOf(t, "rules: "+test.rules), "").WriteText(&b); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(b.String()), " ")
		for _, want := range test.want {
			if !strings.Contains(b.String(), want) && !strings.Contains(text, want) {
				t.Errorf("%s: the page lacks %q:\n%s", test.rules, want, &b)
			}
		}
		for _, not := range test.not {
			if strings.Contains(text, not) {
				t.Errorf("%s: the page has %q:\n%s", test.rules, not, &b)
			}
		}
	}
}

// Each limit has its examples, as a list.
func TestExamplesAreLists(t *testing.T) {
	b, err := json.Marshal(NewPage(setOf(t, `
rules:
  - {name: own, match: {path: /a}, limit: 1/min, denial: {status: 403}}
  - {name: unknown, match: {path: {regex: '^/x+$'}}, limit: 1/min}
`), ""))
	if err != nil || strings.Contains(string(b), "null") || !strings.Contains(string(b), `"status":"403 Forbidden"`) {
		t.Errorf("%v: %s", err, b)
	}
}

// The header with the source of a decision is explained for any rules: a limit may be suspended, and local and open are
// sent with 200 and 429 like closed with 503.
func TestDegradedIsExplained(t *testing.T) {
	d := NewPage(setOf(t, "rules: [{name: a, match: {path: /a}, limit: 1/min}]"), "")
	i := slices.IndexFunc(d.Headers, func(h publicHeader) bool { return h.Name == "X-Ratelimit-Degraded" })
	if i < 0 || d.Headers[i].On != "any" {
		t.Fatalf("the headers are %v", d.Headers)
	}
	for _, source := range []sluice.Source{sluice.SourceFailLocal, sluice.SourceFailOpen, sluice.SourceFailClosed, sluice.SourceSuspended} {
		if !source.Degraded() || !strings.Contains(d.Headers[i].Meaning, source.String()) {
			t.Errorf("%v is not explained: %s", source, d.Headers[i].Meaning)
		}
	}
}

// Every header of the examples is explained.
func TestEveryHeaderIsExplained(t *testing.T) {
	d := NewPage(setOf(t, `
rules:
  - {name: plain, match: {path: /plain}, limit: [10/s, 100/min], on_failure: closed}
  - {name: later, match: {path: /later}, limit: 10/s, on_limit: queue}
  - {name: slow, match: {path: /slow}, limit: {rate: 10/s, burst: 3}, on_limit: delay}
`), "Limits")
	explained := map[string]bool{"Content-Type": true, "Cache-Control": true}
	for _, h := range d.Headers {
		explained[h.Name] = true
	}
	sent := make(map[string]bool)
	for _, e := range d.Examples {
		for _, h := range e.Headers {
			sent[h.Name] = true
		}
	}
	if len(d.Examples) != 4 || !maps.Equal(sent, explained) {
		t.Errorf("%d examples; sent are %v, explained are %v", len(d.Examples), sent, explained)
	}
}

func setOf(t *testing.T, text string) *rules.Set {
	t.Helper()
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "rules.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
