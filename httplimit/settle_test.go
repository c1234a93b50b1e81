package httplimit_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/rules"
)

// tokens returns a rule of 1000 tokens per hour that charges 100 and then settles by the response.
func tokens(by rules.ActualCost, change ...func(*rules.Rule)) rules.Rule {
	r := rules.Rule{
		Name: "tokens", Limits: limits(sluice.PerHour(1000).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest)),
		Cost: rules.Cost{Default: 100}, ActualCost: &by,
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

// spent returns the usage of the rule; it exceeds the limit if the balance is negative.
func spent(t *testing.T, l *sluice.Limiter, r rules.Rule) int64 {
	t.Helper()
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: r.Name, Limit: r.Limits[0].Limit}))
	out := make([]sluice.Decision, 1)
	if _, err := l.Decide(context.Background(), []sluice.Take{{Rule: rule}}, out); err != nil {
		t.Fatal(err)
	}
	return out[0].Limit - out[0].Remaining
}

func answer(header string, body ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range strings.Split(header, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				w.Header().Set(name, value)
			}
		}
		for _, b := range body {
			_, _ = io.WriteString(w, b)
			w.(http.Flusher).Flush()
		}
	}
}

func packed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

func zero() *int64 { return new(int64) }

func TestSettle(t *testing.T) {
	const sse = "Content-Type: text/event-stream; charset=utf-8"
	const usage = `{"id":"x","usage":{"prompt_tokens":7,"total_tokens":42},"choices":[{"total_tokens":1}]}`
	header, field := rules.ActualCost{Header: "x-tokens-used"}, rules.ActualCost{JSON: "usage.total_tokens"}
	stream := []string{
		"data: {\"choices\":[]}\n\n", "event: x\ndata: {\"usage\":{\"total_to", "kens\":41}}\n\n",
		"data: {\"usage\":{\"total_tokens\":42}}\r\n\r\n", "data: {\"usage\":null}\n\n", "data: [DONE]\n\n",
	}
	for name, tt := range map[string]struct {
		by      rules.ActualCost
		handler http.HandlerFunc
		want    int64
	}{
		"header":              {header, answer("X-Tokens-Used: 42"), 42},
		"header and body":     {header, answer("X-Tokens-Used: 42", "hello"), 42},
		"more than estimated": {header, answer("X-Tokens-Used: 420"), 420},
		"as estimated":        {header, answer("X-Tokens-Used: 100"), 100},
		"nothing":             {header, answer("X-Tokens-Used: 0"), 0},
		"a fraction":          {header, answer("X-Tokens-Used: 41.2"), 42},
		"less than nothing":   {header, answer("X-Tokens-Used: -5"), 0},
		"more than all":       {header, answer("X-Tokens-Used: 1e30"), 1000},
		"no number":           {header, answer("X-Tokens-Used: many"), 100},
		"not a number":        {header, answer("X-Tokens-Used: NaN"), 100},
		"missing":             {header, answer(""), 100},
		"missing, by default": {rules.ActualCost{Header: "X-Tokens-Used", Default: zero()}, answer(""), 0},
		"trailer": {header, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "hello")
			w.Header().Set(http.TrailerPrefix+"X-Tokens-Used", "42")
		}, 42},
		"declared trailer": {header, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Tokens-Used")
			_, _ = io.WriteString(w, "hello")
			w.Header().Set("X-Tokens-Used", "42")
		}, 42},
		"panic": {header, func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, 100},
		"header, then panic": {header, func(w http.ResponseWriter, r *http.Request) {
			answer("X-Tokens-Used: 42", "x")(w, r)
			panic(http.ErrAbortHandler)
		}, 42},

		"field":              {field, answer("Content-Type: application/json", usage), 42},
		"field in pieces":    {field, answer("", usage[:30], usage[30:50], usage[50:]), 42},
		"field of problem":   {field, answer("Content-Type: application/problem+json", usage), 42},
		"field in quotes":    {field, answer("", `{"usage":{"total_tokens":"42"}}`), 42},
		"field that is null": {field, answer("", `{"usage":{"total_tokens":null}}`), 100},
		"field of a list":    {field, answer("", `[{"usage":{"total_tokens":42}}]`), 100},
		"cut off":            {field, answer("", usage[:60]), 100},
		"not JSON":           {field, answer("Content-Type: text/plain", usage), 100},
		"too long":           {field, answer("", strings.Repeat(" ", 1<<20), usage), 100},
		"packed":             {field, answer("Content-Encoding: gzip", packed(usage)), 42},
		"packed and cut off": {field, answer("Content-Encoding: gzip", packed(usage)[:40]), 100},
		"packed otherwise":   {field, answer("Content-Encoding: br", usage), 100},
		"a bomb":             {field, answer("Content-Encoding: gzip", packed(strings.Repeat(" ", 4<<20)+usage)), 100},
		"copied": {field, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader(usage)})
		}, 42},
		"stream":            {field, answer(sse, stream...), 42},
		"stream, cut off":   {field, answer(sse, stream[:3]...), 41},
		"stream, long line": {field, answer(sse, "data: "+strings.Repeat("x", 2<<20)+"\n", stream[3]), 42},
		"stream, packed":    {field, answer(sse+"\nContent-Encoding: gzip", packed(strings.Join(stream, ""))), 42},
		"stream of lines":   {field, answer("Content-Type: application/x-ndjson", "{}\n", `{"usage":{"total_tokens":42}}`), 42},
	} {
		t.Run(name, func(t *testing.T) {
			l, rule := limiter(memstore.New()), tokens(tt.by)
			s := httptest.NewServer(httplimit.RulesMiddleware(l, always(rules.Config{Rules: []rules.Rule{rule}}))(tt.handler))
			if resp, err := s.Client().Get(s.URL); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			s.Close() // waits for the handler
			if got := spent(t, l, rule); got != tt.want {
				t.Errorf("charged %d, want %d", got, tt.want)
			}
		})
	}
}

// TestSettleDebt: after a settlement above the limit no request is allowed until the negative balance is replenished, in
// every store.
func TestSettleDebt(t *testing.T) {
	server := redistest.Start(t)
	redis := sluice.Must(redisstore.Open(redisstore.Config{URL: server.URL()}))
	defer redis.Close()
	for name, store := range map[string]sluice.Store{"memory": memstore.New(), "redis": redis} {
		for _, a := range []sluice.Algorithm{sluice.TokenBucket, sluice.LeakyBucket, sluice.FixedWindow, sluice.SlidingWindowLog, sluice.SlidingWindowCounter} {
			t.Run(fmt.Sprint(name, "/", a), func(t *testing.T) {
				l := sluice.Must(sluice.NewWithRules(store, nil, sluice.WithStoreTimeout(10*time.Second)))
				rule := tokens(rules.ActualCost{Header: "X-Tokens-Used"}, func(r *rules.Rule) {
					r.Name, r.Limits = "debt-"+a.String(), limits(sluice.PerDay(1000).WithAlgorithm(a))
				})
				used := "0"
				h := httplimit.RulesMiddleware(l, always(rules.Config{Rules: []rules.Rule{rule}}))(http.HandlerFunc(
					func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Tokens-Used", used) }))
				for range 20 { // actual cost 0
					if status := serve(h, request()).StatusCode; status != 200 {
						t.Fatalf("status %d of requests that cost nothing", status)
					}
				}
				if got := spent(t, l, rule); got != 0 {
					t.Errorf("charged %d for nothing", got)
				}
				used = "2000"
				if status := serve(h, request()).StatusCode; status != 200 {
					t.Errorf("status %d, want 200", status)
				}
				if got := spent(t, l, rule); got != 1000 {
					t.Errorf("charged %d, want all there is", got)
				}
				if status := serve(h, request()).StatusCode; status != 429 {
					t.Errorf("status %d with a negative balance, want 429", status)
				}
			})
		}
	}
}

// TestSettleAndStatus: a response whose status is not charged costs nothing, whatever actual cost it contains.
func TestSettleAndStatus(t *testing.T) {
	for status, want := range map[int]int64{200: 42, 500: 0} {
		l := limiter(memstore.New())
		rule := tokens(rules.ActualCost{Header: "X-Tokens-Used"}, func(r *rules.Rule) { r.ChargeStatus = rules.StatusRanges{{From: 200, To: 299}} })
		failed := rules.Rule{Name: "failed", Limits: rule.Limits, ChargeStatus: rules.StatusRanges{{From: 500, To: 599}}}
		h := httplimit.RulesMiddleware(l, always(rules.Config{Rules: []rules.Rule{rule, failed}}))(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Tokens-Used", "42")
				w.WriteHeader(status)
			}))
		serve(h, request())
		if got := spent(t, l, rule); got != want {
			t.Errorf("%d: charged %d, want %d", status, got, want)
		}
		if got, want := spent(t, l, failed), int64(status/500); got != want {
			t.Errorf("%d: charged %d for failing, want %d", status, got, want)
		}
	}
}

// TestSettleHide: strip_header removes the header from the response, also while the store is unavailable.
func TestSettleHide(t *testing.T) {
	for name, store := range map[string]sluice.Store{"there": memstore.New(), "away": awayStore{}} {
		for _, hide := range []bool{false, true} {
			h := httplimit.RulesMiddleware(limiter(store), always(rules.Config{Rules: []rules.Rule{
				tokens(rules.ActualCost{Header: "X-Tokens-Used", StripHeader: hide}), {Name: "two", Limits: limits(sluice.PerHour(2).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest)), ActualCost: &rules.ActualCost{Header: "X-Tokens-Used"}},
			}}))(answer("X-Tokens-Used: 2", "x"))
			if seen := serve(h, request()).Header.Get("X-Tokens-Used") != ""; seen == hide {
				t.Errorf("%s, hide %t: seen %t", name, hide, seen)
			}
		}
	}
}

// TestSettleStreams: reading the actual cost does not delay a stream, and if the client disconnects, the part sent so far
// counts.
func TestSettleStreams(t *testing.T) {
	l, rule := limiter(memstore.New()), tokens(rules.ActualCost{JSON: "n"})
	s := httptest.NewServer(httplimit.RulesMiddleware(l, always(rules.Config{Rules: []rules.Rule{rule}}))(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"n\":7}\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})))
	ctx, leave := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "data: {\"n\":7}\n" {
		t.Errorf("got %q, %v before the end of the stream", line, err)
	}
	leave()
	_ = resp.Body.Close()
	s.Close()
	if got := spent(t, l, rule); got != 7 {
		t.Errorf("charged %d, want 7", got)
	}
}

// A request that started before a change of the rules is settled under the current limit: 100/min has become 100/day, and
// usage expires within a day, whether the actual cost is more or less than the estimate.
func TestSettleAfterChange(t *testing.T) {
	for used, left := range map[string]int64{"90": 10, "110": 0, "40": 60} {
		synctest.Test(t, func(t *testing.T) {
			rule := func(l sluice.Limit) rules.Rule {
				return tokens(rules.ActualCost{Header: "X-Tokens-Used"}, func(r *rules.Rule) { r.Cost.Default, r.Limits = 50, limits(l) })
			}
			before, after := rule(sluice.PerMinute(100)), rule(sluice.PerDay(100))
			set := ruleSet(rules.Config{Rules: []rules.Rule{before}})
			l := limiter(memstore.New())
			h := httplimit.RulesMiddleware(l, func() *rules.Set { return set })(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				set = ruleSet(rules.Config{Rules: []rules.Rule{after}})
				spent(t, l, after) // converts the state, as another request would
				w.Header().Set("X-Tokens-Used", used)
			}))
			serve(h, request())
			<-time.After(time.Minute)
			if got := 100 - spent(t, l, after); got != left {
				t.Errorf("%s of 100/day used a minute ago: %d remaining, want %d", used, got, left)
			}
		})
	}
}
