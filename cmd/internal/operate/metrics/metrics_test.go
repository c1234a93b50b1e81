package metrics_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

func parse(t testing.TB, text string) *rules.Set {
	t.Helper()
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "r.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// live is a rule set that can be replaced.
type live struct{ atomic.Pointer[rules.Set] }

func rulesOf(t testing.TB, text string) *live {
	l := new(live)
	l.Store(parse(t, text))
	return l
}

// rule returns the rule with the name.
func (l *live) rule(t testing.TB, name string) *sluice.Rule {
	t.Helper()
	for _, r := range l.Load().LimiterRules() {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("there is no rule %q", name)
	return nil
}

// scrape scrapes the metrics as Prometheus does and returns the samples by series.
func scrape(t testing.TB, m *metrics.Metrics) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	got := map[string]float64{}
	for s := bufio.NewScanner(w.Body); s.Scan(); {
		line := s.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got[line[:at]] = v
	}
	return got
}

func ours(samples map[string]float64, prefix string) map[string]float64 {
	maps.DeleteFunc(samples, func(name string, _ float64) bool { return !strings.HasPrefix(name, prefix) })
	return samples
}

func compare(t testing.TB, got, want map[string]float64) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if v, ok := got[name]; !ok || v != want[name] {
			t.Errorf("%s is %v (exists: %v), want %v", name, v, ok, want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("unexpected series %s %v", name, got[name])
		}
	}
}

const several = `
rules:
  - {name: posts, per: 'claim:sub', limits: [2/min, {rate: 5/h, burst: 7}]}
  - {name: logins, per: ip, limit: 10/s, shadow: true}
`

// Every kind of decision has its own series, by result and source.
func TestDecisions(t *testing.T) {
	l := rulesOf(t, several)
	m := metrics.New(metrics.Config{Rules: l.Load})
	decided := m.Events().OnDecision
	posts, second, logins := l.rule(t, "posts"), l.rule(t, "posts#2"), l.rule(t, "logins")
	quiet := *posts // a copy, as edges make it of rules in shadow mode
	quiet.Shadow = true
	stranger := sluice.Must(sluice.NewRule(sluice.Rule{Name: "d//1m0s", Limit: sluice.PerMinute(1)}))
	for _, c := range []struct {
		rule  *sluice.Rule
		take  sluice.Take
		d     sluice.Decision
		times int
	}{
		{posts, sluice.Take{Cost: 1}, sluice.Decision{Allowed: true, Limit: 2, Granted: 1, Remaining: 1}, 3},
		{posts, sluice.Take{Cost: 1}, sluice.Decision{Allowed: true, Limit: 2, Granted: 1, Remaining: 0}, 2}, // near
		{posts, sluice.Take{Cost: 1}, sluice.Decision{Limit: 2}, 4},
		{posts, sluice.Take{Cost: -1, Receipt: 9}, sluice.Decision{Allowed: true, Granted: -1, Limit: 2}, 100}, // refund
		{posts, sluice.Take{Cost: 1, Receipt: 9}, sluice.Decision{Allowed: true, Granted: 1, Limit: 2}, 100},   // settlement
		{posts, sluice.Take{Cost: 1}, sluice.Decision{Source: sluice.SourceDenyCache}, 5},
		{posts, sluice.Take{Cost: 1}, sluice.Decision{Source: sluice.SourceDenyCache, Allowed: true, Limit: 2}, 6},
		{posts, sluice.Take{Cost: 1}, sluice.Decision{Source: sluice.SourceFailLocal, Allowed: true, Granted: 1, Limit: 10, Remaining: 2}, 7},
		{posts, sluice.Take{Cost: 1}, sluice.Decision{Source: sluice.SourceFailLocal}, 8},
		{posts, sluice.Take{Cost: 1}, sluice.Decision{Source: sluice.SourceFailOpen, Allowed: true, Granted: 1, Limit: 2}, 9},
		{posts, sluice.Take{Cost: 1}, sluice.Decision{Source: sluice.SourceFailClosed}, 10},
		{posts, sluice.Take{Cost: 1}, sluice.Decision{Source: sluice.SourceSuspended, Allowed: true, Limit: 2}, 11},
		{&quiet, sluice.Take{Cost: 1}, sluice.Decision{Allowed: true, ShadowDenied: true, Limit: 2}, 12},
		{second, sluice.Take{Cost: 1}, sluice.Decision{Source: sluice.SourceLease, Allowed: true, Granted: 1, Limit: 7, Remaining: 6}, 13},
		{second, sluice.Take{Cost: 1}, sluice.Decision{Source: sluice.SourceEventual, Allowed: true, Granted: 1, Limit: 7, Remaining: 1}, 14},
		{logins, sluice.Take{Cost: 1}, sluice.Decision{Allowed: true, ShadowDenied: true, Limit: 10}, 15},
		{stranger, sluice.Take{Cost: 1}, sluice.Decision{Allowed: true, Limit: 1, Granted: 1}, 16},
	} {
		c.take.Rule, c.take.Key = c.rule, "ada"
		for range c.times {
			decided(t.Context(), c.take, c.d)
		}
	}
	series := func(rule, result, source string) string {
		return fmt.Sprintf(`sluice_decisions_total{result=%q,rule=%q,source=%q}`, result, rule, source)
	}
	compare(t, ours(scrape(t, m), "sluice_decisions_total"), map[string]float64{
		series("posts", "allowed", "store"): 5, series("posts", "denied", "store"): 4,
		series("posts", "denied", "deny_cache"): 5, series("posts", "allowed", "deny_cache"): 6,
		series("posts", "degraded_allowed", "local"): 7, series("posts", "degraded_denied", "local"): 8,
		series("posts", "degraded_allowed", "open"): 9, series("posts", "degraded_denied", "closed"): 10,
		series("posts", "allowed", "suspended"): 11, series("posts", "shadow_denied", "store"): 12,
		series("posts#2", "allowed", "store"): 0, series("posts#2", "denied", "store"): 0,
		series("posts#2", "allowed", "lease"): 13, series("posts#2", "allowed", "eventual"): 14,
		series("logins", "allowed", "store"): 0, series("logins", "shadow_denied", "store"): 15,
		series("other", "allowed", "store"): 16, series("other", "denied", "store"): 0,
	})
	compare(t, ours(scrape(t, m), "sluice_near_limit_total"), map[string]float64{
		`sluice_near_limit_total{rule="posts"}`: 2, `sluice_near_limit_total{rule="posts#2"}`: 14,
		`sluice_near_limit_total{rule="logins"}`: 0, `sluice_near_limit_total{rule="other"}`: 16,
	})
	want := []metrics.RuleCounts{
		{"posts", 5 + 6 + 7 + 9 + 11, 4 + 5 + 8 + 10, 12, 2}, {"posts#2", 27, 0, 0, 14}, {"logins", 0, 0, 15, 0}, {"other", 16, 0, 0, 16},
	}
	if got := m.PerRule(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := fmt.Sprint(m.Denied.Top(10)); got != "[{posts ada 39 0} {logins ada 15 0}]" {
		t.Errorf("denied: %s", got)
	}
	if got := fmt.Sprint(m.Near.Top(10)); got != "[{d//1m0s ada 16 0} {posts#2 ada 14 0} {posts ada 2 0}]" {
		t.Errorf("near: %s", got)
	}
}

// The limits of rules are exported, for comparison with their usage.
func TestLimits(t *testing.T) {
	l := rulesOf(t, several)
	m := metrics.New(metrics.Config{Rules: l.Load})
	compare(t, ours(scrape(t, m), "sluice_rule_"), map[string]float64{
		`sluice_rule_limit{rule="posts"}`: 2, `sluice_rule_window_seconds{rule="posts"}`: 60, `sluice_rule_burst{rule="posts"}`: 2,
		`sluice_rule_limit{rule="posts#2"}`: 5, `sluice_rule_window_seconds{rule="posts#2"}`: 3600, `sluice_rule_burst{rule="posts#2"}`: 7,
		`sluice_rule_limit{rule="logins"}`: 10, `sluice_rule_window_seconds{rule="logins"}`: 1, `sluice_rule_burst{rule="logins"}`: 10,
		`sluice_rule_peak_utilization_ratio{rule="posts"}`: 0, `sluice_rule_peak_utilization_ratio{rule="posts#2"}`: 0,
		`sluice_rule_peak_utilization_ratio{rule="logins"}`: 0,
	})
}

// The peak is the highest utilization by any key, over about one minute.
func TestPeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := rulesOf(t, several)
		m := metrics.New(metrics.Config{Rules: l.Load})
		use := func(remaining int64) {
			m.Events().OnDecision(t.Context(), sluice.Take{Rule: l.rule(t, "posts#2"), Cost: 1}, sluice.Decision{
				Allowed: true, Granted: 1, Limit: 8, Remaining: remaining,
			})
		}
		expect := func(want float64) {
			t.Helper()
			if got := scrape(t, m)[`sluice_rule_peak_utilization_ratio{rule="posts#2"}`]; got != want {
				t.Errorf("the peak is %v, want %v", got, want)
			}
		}
		expect(0)
		use(4)
		use(2)
		use(6)
		expect(0.75)
		<-time.After(31 * time.Second)
		expect(0.75)
		use(7)
		<-time.After(31 * time.Second)
		expect(0.125)
		<-time.After(31 * time.Second)
		expect(0)
		m.Events().OnDecision(t.Context(), sluice.Take{Rule: l.rule(t, "posts#2"), Cost: 1}, sluice.Decision{Limit: 8, Remaining: 3})
		expect(1) // denied: the whole limit is used
	})
}

// Rules that remain keep their counters, removed rules lose their series, and new rules are counted from the first decision.
func TestReload(t *testing.T) {
	l := rulesOf(t, several)
	m := metrics.New(metrics.Config{Rules: l.Load})
	count := func(r *sluice.Rule) {
		m.Events().OnDecision(t.Context(), sluice.Take{Rule: r, Cost: 1}, sluice.Decision{Allowed: true, Limit: 9, Remaining: 9, Granted: 1})
	}
	old, gone := l.rule(t, "posts"), l.rule(t, "logins")
	count(old)
	count(gone)
	l.Store(parse(t, "rules: [{name: fresh, limit: 1/s}, {name: posts, per: ip, limit: 3/min}, {name: other, limit: 1/s}]"))
	count(l.rule(t, "fresh")) // no scrape since the reload
	count(l.rule(t, "posts"))
	count(old)  // by a request that began before the reload
	count(gone) // likewise
	compare(t, ours(scrape(t, m), "sluice_decisions_total"), map[string]float64{
		`sluice_decisions_total{result="allowed",rule="fresh",source="store"}`: 1, `sluice_decisions_total{result="denied",rule="fresh",source="store"}`: 0,
		`sluice_decisions_total{result="allowed",rule="posts",source="store"}`: 3, `sluice_decisions_total{result="denied",rule="posts",source="store"}`: 0,
		`sluice_decisions_total{result="allowed",rule="other",source="store"}`: 1, `sluice_decisions_total{result="denied",rule="other",source="store"}`: 0,
	})
	if got := scrape(t, m)[`sluice_rule_limit{rule="posts"}`]; got != 3 {
		t.Errorf("the limit is %v", got)
	}
	l.Store(parse(t, several))
	if got := m.PerRule(); got[0].Allowed != 3 || got[2].Name != "logins" || got[2].Allowed != 0 || len(got) != 4 {
		t.Errorf("after a rule was added again: %v", got)
	}
}

// Decisions made during reloads are all counted.
func TestReloadTogether(t *testing.T) {
	l := rulesOf(t, several)
	m := metrics.New(metrics.Config{Rules: l.Load})
	var counting sync.WaitGroup
	const each = 2000
	for range 4 {
		counting.Go(func() {
			for range each {
				r := l.Load().LimiterRules()[0]
				m.Events().OnDecision(t.Context(), sluice.Take{Rule: r, Cost: 1}, sluice.Decision{Allowed: true})
			}
		})
	}
	for range 20 {
		l.Store(parse(t, several))
		scrape(t, m)
	}
	counting.Wait()
	if got := m.PerRule()[0]; got.Allowed != 4*each {
		t.Errorf("%d of %d decisions are counted", got.Allowed, 4*each)
	}
}

// The number of series does not depend on the number of keys.
func TestSeriesDoNotGrow(t *testing.T) {
	n := 50_000
	if os.Getenv("SLUICE_SOAK") != "" {
		n = 1_000_000
	}
	l := rulesOf(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1}}]\n")
	m := metrics.New(metrics.Config{Rules: l.Load})
	limiter := sluice.Must(sluice.NewWithRules(memstore.New(), nil, sluice.WithEvents(m.Events())))
	requests := m.Requests("rls", "OK")
	var matched rules.DescriptorMatches
	out := make([]sluice.Decision, 2)
	ask := func(user string) {
		began := time.Now()
		l.Load().MatchDescriptors("d", []rules.Descriptor{{Entries: []rules.Entry{{Key: "k", Value: user}}, Cost: 1}}, &matched)
		for range 2 { // the second is denied
			if _, err := limiter.Decide(t.Context(), matched.Takes, out); err != nil {
				t.Fatal(err)
			}
		}
		requests.Done("OK", began)
	}
	ask("the first")
	before := scrape(t, m)
	for i := range n {
		ask(strconv.Itoa(i))
	}
	after := scrape(t, m)
	if got, want := slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)); !slices.Equal(got, want) {
		t.Errorf("%d series became %d", len(want), len(got))
	}
	for result, verb := range map[string]string{"allowed": "allowed", "denied": "denied"} {
		name := fmt.Sprintf(`sluice_decisions_total{result=%q,rule="d/k",source="store"}`, result)
		if after[name] != float64(n+1) {
			t.Errorf("%v are %s", after[name], verb)
		}
	}
	if len(before) < 50 {
		t.Errorf("there are only %d series", len(before))
	}
}

// Counting a decision does not allocate, whether it is allowed, near the limit or denied.
func TestAllocations(t *testing.T) {
	l := rulesOf(t, several)
	m := metrics.New(metrics.Config{Rules: l.Load})
	decided, requests := m.Events().OnDecision, m.Requests("rls")
	take := sluice.Take{Rule: l.rule(t, "posts"), Key: "ada", Cost: 1}
	for name, d := range map[string]sluice.Decision{
		"allowed": {Allowed: true, Granted: 1, Limit: 10, Remaining: 9}, "near": {Allowed: true, Granted: 1, Limit: 10, Remaining: 1}, "denied": {},
	} {
		if n := testing.AllocsPerRun(1000, func() { decided(context.Background(), take, d); requests.Done("OK", time.Now()) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Requests are counted by protocol and code. The number of codes is bounded.
func TestRequests(t *testing.T) {
	l := rulesOf(t, several)
	m := metrics.New(metrics.Config{Rules: l.Load})
	r := m.Requests("http", "200", "429")
	began := time.Now()
	r.Done("200", began)
	r.Done("500", began)
	r.Done("500", began)
	compare(t, ours(scrape(t, m), "sluice_requests_total"), map[string]float64{
		`sluice_requests_total{code="200",protocol="http"}`: 1, `sluice_requests_total{code="429",protocol="http"}`: 0,
		`sluice_requests_total{code="500",protocol="http"}`: 2,
	})
	if got := scrape(t, m)[`sluice_decision_duration_seconds_count{protocol="http"}`]; got != 3 {
		t.Errorf("%v durations", got)
	}
	for i := range 1000 {
		r.Done(fmt.Sprint("code ", i), began)
	}
	if got := len(ours(scrape(t, m), "sluice_requests_total")); got != 51 {
		t.Errorf("there are %d codes", got)
	}
	many := m.Requests("resp", "allowed")
	many.Add("allowed", 40)
	many.Add("allowed", 2)
	many.Add("error", 1)
	got := scrape(t, m)
	if got[`sluice_requests_total{code="allowed",protocol="resp"}`] != 42 || got[`sluice_requests_total{code="error",protocol="resp"}`] != 1 ||
		got[`sluice_decision_duration_seconds_count{protocol="resp"}`] != 0 {
		t.Errorf("got %v", ours(got, "sluice_requests_total"))
	}
	var none *metrics.Requests
	none.Done("200", began)
}

// The histogram is native for clients that support native histograms.
func TestNativeHistogram(t *testing.T) {
	m := metrics.New(metrics.Config{Rules: rulesOf(t, several).Load})
	m.Requests("rls").Done("OK", time.Now())
	req := httptest.NewRequest("GET", "/metrics", nil)
	req.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, req)
	for d := expfmt.NewDecoder(w.Body, expfmt.ResponseFormat(w.Header())); ; {
		var f dto.MetricFamily
		if err := d.Decode(&f); err != nil {
			t.Fatalf("there is no histogram: %v", err)
		}
		if f.GetName() == "sluice_decision_duration_seconds" {
			if h := f.GetMetric()[0].GetHistogram(); len(h.GetPositiveSpan()) != 1 || len(h.GetBucket()) == 0 {
				t.Errorf("got %v", h)
			}
			return
		}
	}
}

func BenchmarkDecided(b *testing.B) {
	l := rulesOf(b, several)
	m := metrics.New(metrics.Config{Rules: l.Load})
	decided, requests := m.Events().OnDecision, m.Requests("rls", "OK")
	take := sluice.Take{Rule: l.rule(b, "posts"), Key: "ada", Cost: 1}
	d := sluice.Decision{Allowed: true, Granted: 1, Limit: 10, Remaining: 9}
	b.Run("allowed", func(b *testing.B) {
		for b.Loop() {
			decided(context.Background(), take, d)
		}
	})
	b.Run("denied", func(b *testing.B) {
		for b.Loop() {
			decided(context.Background(), take, sluice.Decision{})
		}
	})
	b.Run("request", func(b *testing.B) {
		for b.Loop() {
			requests.Done("OK", time.Now())
		}
	})
}
