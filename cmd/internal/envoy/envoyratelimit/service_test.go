package envoyratelimit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/envoy/stats"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// noon is the time of tests with a fixed clock.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// tested is a service with rules and a fixed clock.
type tested struct {
	*Service
	t   testing.TB
	now time.Time
}

// newTested returns a service with the variables, and with the descriptors below of domain d, in the short form of rlstest.
func newTested(t testing.TB, below string, environ ...string) *tested {
	t.Helper()
	tt := &tested{t: t, now: noon}
	clock := func() time.Time { return tt.now }
	tt.Service = newServiceOn(t, sluice.Must(memstore.Open(memstore.Config{Now: clock})), below, environ...)
	tt.Service.now = clock
	return tt
}

func newServiceOn(t testing.TB, store sluice.Store, below string, environ ...string) *Service {
	t.Helper()
	settings, _, err := ReadSettings(append([]string{"USE_STATSD=false"}, environ...))
	if err != nil {
		t.Fatal(err)
	}
	var s *Service
	events := sluice.Events{OnStoreError: func(ctx context.Context, err error) { s.Failed(ctx, err) }}
	s, err = NewService(store, settings, stats.New(settings.Stats.MaxSeries), sluice.WithEvents(events))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Use(ruleSet(t, below)); err != nil {
		t.Fatal(err)
	}
	return s
}

func newStats() *stats.Stats { return stats.New(100) }

func ruleSet(t testing.TB, below string) *rules.Set {
	t.Helper()
	c := rlstest.Case{Name: "d", Rules: below}
	name, text := c.File()
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: name, Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return sluice.Must(rules.New(cfg))
}

// ask sends a request and returns the response, both in the format of rlstest.
func (s *tested) ask(text string) string {
	s.t.Helper()
	return s.askWith(s.t.Context(), text)
}

func (s *tested) askWith(ctx context.Context, text string) string {
	s.t.Helper()
	m, err := rlstest.Ask("d", text)
	if err != nil {
		s.t.Fatal(err)
	}
	var (
		req  rls.Request
		resp rls.Response
	)
	req.FromProto(m)
	if err := s.ShouldRateLimit(ctx, &req, &resp); err != nil {
		return err.Error()
	}
	return rlstest.Tell(resp.Proto())
}

// counts returns the statistics of a limit that are not 0, sorted by name.
func (s *tested) counts(of string) string {
	var all []string
	s.stats.Each(func(name string, value uint64) {
		if rest, ok := strings.CutPrefix(name, "ratelimit.service.rate_limit."+of+"."); ok {
			all = append(all, fmt.Sprint(rest, " ", value))
		}
	})
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// script is a sequence of requests and responses.
type script struct {
	name    string
	environ []string
	rules   string
	steps   []rlstest.Step
	of      string // limit whose statistics are checked at the end
	want    string
}

var scripts = []script{
	{
		name: "the splits of hits", rules: "  - {key: a, limit: 10}\n", of: "d.a",
		steps: []rlstest.Step{
			{Ask: "a=1 hits:7", Want: "OK: OK 10/YEAR left 3"},
			{Ask: "a=1 hits:2", Want: "OK: OK 10/YEAR left 1"},
			{Ask: "a=1 hits:5", Want: "OVER_LIMIT: OVER_LIMIT 10/YEAR left 0"},
			{Ask: "a=1 hits:4", Want: "OVER_LIMIT: OVER_LIMIT 10/YEAR left 0"},
		},
		want: "near_limit 2, over_limit 8, total_hits 18, within_limit 9",
	},
	{
		name: "all hits are near", rules: "  - {key: a, limit: 10}\n", of: "d.a",
		steps: []rlstest.Step{
			{Ask: "a=1 hits:8", Want: "OK: OK 10/YEAR left 2"},
			{Ask: "a=1 hits:2", Want: "OK: OK 10/YEAR left 0"},
		},
		want: "near_limit 2, total_hits 10, within_limit 10",
	},
	{
		name: "from below near to over", rules: "  - {key: a, limit: 10}\n", of: "d.a",
		steps: []rlstest.Step{{Ask: "a=1 hits:15", Want: "OVER_LIMIT: OVER_LIMIT 10/YEAR left 0"}},
		want:  "near_limit 2, over_limit 5, total_hits 15",
	},
	{
		name: "another ratio", environ: []string{"NEAR_LIMIT_RATIO=0.5"}, rules: "  - {key: a, limit: 10}\n", of: "d.a",
		steps: []rlstest.Step{{Ask: "a=1 hits:10", Want: "OK: OK 10/YEAR left 0"}},
		want:  "near_limit 5, total_hits 10, within_limit 10",
	},
	{
		name: "shadow mode", rules: "  - {key: a, shadow_mode: true, limit: 1}\n", of: "d.a",
		steps: []rlstest.Step{
			{Ask: "a=1 hits:3", Want: "OK: OK 1/YEAR left 0"},
			{Ask: "a=1 hits:3", Want: "OK: OK 1/YEAR left 0"},
		},
		want: "near_limit 1, over_limit 5, shadow_mode 5, total_hits 6",
	},
	{
		name: "unlimited and replaced have no statistics", of: "d.a",
		rules: "  - {key: a, rate_limit: {unit: year, requests_per_unit: 5, name: n}}\n" +
			"  - {key: b, rate_limit: {unlimited: true, replaces: [{name: n}]}}\n",
		steps: []rlstest.Step{{Ask: "a=1 | b=1", Want: "OK: OK | OK left 4294967295"}},
	},
	{
		name: "refused requests count", rules: "  - {key: a, limit: 1}\n  - {key: b, limit: 3}\n", of: "d.b",
		steps: []rlstest.Step{
			{Ask: "a=1 | b=1", Want: "OK: OK 1/YEAR left 0 | OK 3/YEAR left 2"},
			{Ask: "a=1 | b=1", Want: "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OK 3/YEAR left 1"},
			{Ask: "b=1", Want: "OK: OK 3/YEAR left 0"},
		},
		want: "near_limit 1, total_hits 3, within_limit 3",
	},
	{
		name: "asking", rules: "  - {key: a, limit: 2}\n", of: "d.a",
		steps: []rlstest.Step{
			{Ask: "a=1 hits:0", Want: "OK: OK 2/YEAR left 2"},
			{Ask: "a=1 hits:2", Want: "OK: OK 2/YEAR left 0"},
			{Ask: "a=1 hits:0", Want: "OK: OK 2/YEAR left 0"},
			{Ask: "a=1", Want: "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0"},
			{Ask: "a=1 hits:0", Want: "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0"},
		},
		want: "near_limit 1, over_limit 1, total_hits 3, within_limit 2",
	},
	{
		name: "what stands before in the request counts", rules: "  - {key: a, limit: 9}\n",
		steps: []rlstest.Step{{
			Ask:  "a=1 hits:0 | a=1 hits:2 | a=1 hits:0 | a=1 give:1 | a=1 hits:0",
			Want: "OK: OK 9/YEAR left 9 | OK 9/YEAR left 7 | OK 9/YEAR left 7 | OK 9/YEAR left 8 | OK 9/YEAR left 8",
		}},
	},
	{
		name: "negative hits", rules: "  - {key: a, limit: 4}\n", of: "d.a",
		steps: []rlstest.Step{
			{Ask: "a=1 hits:6", Want: "OVER_LIMIT: OVER_LIMIT 4/YEAR left 0"},
			{Ask: "a=1 give:1", Want: "OK: OK 4/YEAR left 0"},
			{Ask: "a=1 give:3", Want: "OK: OK 4/YEAR left 2"},
			{Ask: "a=1 give:100", Want: "OK: OK 4/YEAR left 4"},
			{Ask: "a=2 give:100", Want: "OK: OK 4/YEAR left 4"},
			{Ask: "a=1", Want: "OK: OK 4/YEAR left 3"},
			{Ask: "a=1 give:0", Want: "OK: OK 4/YEAR left 3"},
		},
		want: "near_limit 1, over_limit 2, total_hits 7, total_negative_hits 204, within_limit 1",
	},
	{
		name: "hits beyond what a counter holds count", rules: "  - {key: a, limit: 10}\n  - {key: b, limit: 2}\n",
		steps: []rlstest.Step{
			{Ask: "a=1", Want: "OK: OK 10/YEAR left 9"},
			{Ask: "a=1 hits:4294967295 | b=1", Want: "OVER_LIMIT: OVER_LIMIT 10/YEAR left 0 | OK 2/YEAR left 1"},
			{Ask: "a=1 | b=1", Want: "OVER_LIMIT: OVER_LIMIT 10/YEAR left 0 | OK 2/YEAR left 0"},
		},
	},
	{
		name: "hits saturate", rules: "  - {key: a, limit: 4294967295}\n", of: "d.a",
		steps: []rlstest.Step{
			{Ask: "a=1 hits:18446744073709551615", Want: "OK: OK 4294967295/YEAR left 0"},
			{Ask: "a=1", Want: "OVER_LIMIT: OVER_LIMIT 4294967295/YEAR left 0"},
		},
		want: "near_limit 858993407, over_limit 1, total_hits 4294967296, within_limit 4294967295",
	},
	{
		name: "limits that requests bring", rules: "  - {key: a, limit: 5}\n", of: "d.a_1",
		steps: []rlstest.Step{
			{Ask: "a=1 limit:3/YEAR", Want: "OK: OK 3/YEAR left 2"},
			{Ask: "a=1", Want: "OK: OK 5/YEAR left 3"}, // the same count
			{Ask: "a=1 limit:3/YEAR", Want: "OK: OK 3/YEAR left 0"},
			{Ask: "a=1 limit:3/YEAR", Want: "OVER_LIMIT: OVER_LIMIT 3/YEAR left 0"},
			{Ask: "a=1 limit:3/DAY", Want: "OK: OK 3/DAY left 2"},
			{Ask: "a=1 limit:3/UNKNOWN", Want: "OK: OK 5/YEAR left 0"}, // invalid: the rule applies
			{Ask: "b=1,c=2 limit:3/MINUTE", Want: "OK: OK 3/MINUTE left 2"},
			{Ask: "domain:other | a=1 limit:3/YEAR", Want: "OK: OK"},
		},
		want: "near_limit 1, over_limit 1, total_hits 4, within_limit 3",
	},
	{
		name: "stop when over", environ: []string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true"},
		rules: "  - {key: a, limit: 1}\n  - {key: b, limit: 5}\n", of: "d.b",
		steps: []rlstest.Step{
			{Ask: "a=1 | b=1", Want: "OK: OK 1/YEAR left 0 | OK 5/YEAR left 4"},
			{Ask: "a=1 | b=1", Want: "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OK 5/YEAR left 4"},
			{Ask: "a=1 | b=1", Want: "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OK 5/YEAR left 4"},
			{Ask: "b=1 hits:4", Want: "OK: OK 5/YEAR left 0"},
		},
		want: "near_limit 1, total_hits 7, within_limit 7",
	},
	{
		name: "stop when over, known to be", rules: "  - {key: a, limit: 1}\n  - {key: b, limit: 5}\n", of: "d.a",
		environ: []string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true", "LOCAL_CACHE_SIZE_IN_BYTES=1000000"},
		steps: []rlstest.Step{
			{Ask: "a=1 hits:2", Want: "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0"},
			{Ask: "a=1 | b=1", Want: "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OK 5/YEAR left 5"},
			{Ask: "b=1", Want: "OK: OK 5/YEAR left 4"},
		},
		want: "near_limit 1, over_limit 2, over_limit_with_local_cache 1, total_hits 3",
	},
	{
		name: "local cache", environ: []string{"LOCAL_CACHE_SIZE_IN_BYTES=1000000"}, of: "d.a",
		rules: "  - {key: a, limit: 2}\n  - {key: s, shadow_mode: true, limit: 0}\n",
		steps: []rlstest.Step{
			{Ask: "a=1 hits:3 | a=1", Want: "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0 | OVER_LIMIT 2/YEAR left 0"},
			{Ask: "a=1", Want: "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0"},
			{Ask: "a=2", Want: "OK: OK 2/YEAR left 1"},
			{Ask: "a=1 limit:9/YEAR", Want: "OK: OK 9/YEAR left 4"}, // within this limit, and a=1 above was not counted
			{Ask: "s=1 | s=1", Want: "OK: OK 0/YEAR left 0 | OK 0/YEAR left 0"},
			{Ask: "s=1", Want: "OK: OK 0/YEAR left 0"},
			{Ask: "a=1 give:5", Want: "OK: OK 2/YEAR left 2"},
			{Ask: "a=1", Want: "OK: OK 2/YEAR left 1"}, // the refund takes effect at once
		},
		want: "near_limit 1, over_limit 3, over_limit_with_local_cache 1, total_hits 7, total_negative_hits 5, within_limit 2",
	},
	{
		name: "values in names", rules: "  - {key: ip, detailed_metric: true, limit: 5}\n", of: "d.ip_10_0_0_1",
		steps: []rlstest.Step{{Ask: "ip=10.0.0.1", Want: "OK: OK 5/YEAR left 4"}},
		want:  "total_hits 1, within_limit 1",
	},
	{
		name: "too many values in names", rules: "  - {key: ip, detailed_metric: true, limit: 5}\n", of: "d.other",
		environ: []string{"SLUICE_MAX_SERIES=1"},
		steps: []rlstest.Step{
			{Ask: "ip=1", Want: "OK: OK 5/YEAR left 4"},
			{Ask: "ip=2", Want: "OK: OK 5/YEAR left 4"},
			{Ask: "ip=3", Want: "OK: OK 5/YEAR left 4"},
		},
		want: "total_hits 2, within_limit 2",
	},
	{
		name: "errors", rules: "  - {key: a, limit: 1}\n",
		steps: []rlstest.Step{
			{Ask: "domain: | a=1", Want: "rpc error: code = Unknown desc = rate limit domain must not be empty"},
			{Ask: "@1", Want: "rpc error: code = Unknown desc = rate limit descriptor list must not be empty"},
		},
	},
}

func TestScripts(t *testing.T) {
	for _, keys := range []string{"sluice", "envoy"} {
		for _, c := range scripts {
			if keys == "envoy" && c.name == "hits saturate" {
				continue // counts in Redis persist
			}
			t.Run(keys+"/"+c.name, func(t *testing.T) {
				s := newTested(t, c.rules, append(c.environ, "SLUICE_KEY_FORMAT="+keys)...)
				for i, step := range c.steps {
					if got := s.ask(step.Ask); got != step.Want {
						t.Errorf("step %d, %s:\ngot  %s\nwant %s", i+1, step.Ask, got, step.Want)
					}
				}
				if got := s.counts(c.of); c.of != "" && got != c.want {
					t.Errorf("statistics of %s:\ngot  %s\nwant %s", c.of, got, c.want)
				}
			})
		}
	}
}

func TestWindows(t *testing.T) {
	s := newTested(t, "  - {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}\n", "LOCAL_CACHE_SIZE_IN_BYTES=1000000")
	last, over := "OK: OK 1/MINUTE left 0", "OVER_LIMIT: OVER_LIMIT 1/MINUTE left 0"
	s.now = noon.Add(59 * time.Second)
	for _, want := range []string{last, over, over} {
		if got := s.ask("a=1"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	s.now = noon.Add(60 * time.Second)
	if got := s.ask("a=1"); got != last {
		t.Errorf("in the next minute: %s", got)
	}
	s.now = noon.Add(70*time.Second + 500*time.Millisecond)
	if got := s.reset("a=1"); got != 50 {
		t.Errorf("the window ends in %d s, want 50", got)
	}
	if got := s.reset("a=2 hits:0"); got != 50 {
		t.Errorf("the window without hits ends in %d s, want 50", got)
	}
	if got := s.reset("a=1"); got != 50 {
		t.Errorf("the window of a cached denial ends in %d s, want 50", got)
	}
}

// reset returns the reset of the first status.
func (s *tested) reset(ask string) int64 {
	m, err := rlstest.Ask("d", ask)
	if err != nil {
		s.t.Fatal(err)
	}
	var (
		req  rls.Request
		resp rls.Response
	)
	req.FromProto(m)
	if err := s.ShouldRateLimit(s.t.Context(), &req, &resp); err != nil {
		s.t.Fatal(err)
	}
	return resp.Statuses[0].Reset
}

func TestUnknownDomains(t *testing.T) {
	s := newTested(t, "  - {key: a, limit: 1}\n")
	if got := s.ask("domain:x | a=1 | b=1"); got != "OK: OK | OK" {
		t.Error(got)
	}
	if got := s.counts("x"); got != "domain_not_found 2" {
		t.Error(got)
	}
	for i := range 2000 {
		s.ask(fmt.Sprintf("domain:x%d | a=1", i))
	}
	if got := s.counts("other"); got != "domain_not_found 1001" {
		t.Error(got)
	}
}

func TestBeforeRulesAreLoaded(t *testing.T) {
	settings, _, err := ReadSettings(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &tested{t: t, Service: sluice.Must(NewService(memstore.New(), settings, stats.New(0)))}
	if got, want := s.ask("a=1"), "rpc error: code = Unknown desc = no rate limit configuration loaded"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := s.stats.ServiceError.Load(); n != 1 {
		t.Errorf("%d service errors", n)
	}
	if s.Dump() != "" {
		t.Error(s.Dump())
	}
}

// Rules with unsupported limits are rejected, and the previous rules stay in use.
func TestRefusedRules(t *testing.T) {
	s := newTested(t, "  - {key: a, limit: 1}\n")
	for _, below := range []string{
		"  - {key: a, rate_limit: {unit: minute, requests_per_unit: 1, algorithm: token_bucket}}\n",
		"  - {key: a, rate_limit: {window: 90s, requests_per_unit: 1}}\n",
		"  - {key: a, rate_limit: {unit: minute, requests_per_unit: 1, accuracy: lease}}\n",
		"  - {key: a, rate_limit: [{unit: minute, requests_per_unit: 1}, {unit: hour, requests_per_unit: 1}]}\n",
	} {
		if err := s.Use(ruleSet(t, below)); err == nil || !strings.Contains(err.Error(), "d.yaml:3:") {
			t.Errorf("%s: %v", below, err)
		}
	}
	if got := s.ask("a=1"); got != "OK: OK 1/YEAR left 0" {
		t.Error(got)
	}
}

// A reload keeps the counts in the store and in the statistics.
func TestReload(t *testing.T) {
	s := newTested(t, "  - {key: a, limit: 5}\n  - {key: gone, limit: 5}\n")
	s.ask("a=1 | gone=1")
	if err := s.Use(ruleSet(t, "  - {key: a, limit: 2}\n")); err != nil {
		t.Fatal(err)
	}
	if got := s.ask("a=1 | gone=1"); got != "OK: OK 2/YEAR left 0 | OK" {
		t.Error(got)
	}
	if got := s.counts("d.a"); got != "near_limit 1, total_hits 2, within_limit 2" {
		t.Error(got)
	}
	if got := s.counts("d.gone"); got != "" {
		t.Errorf("a removed rule still has statistics: %s", got)
	}
}

func TestDump(t *testing.T) {
	s := newTested(t, "  - {key: b, value: x, shadow_mode: true, rate_limit: {unit: week, requests_per_unit: 3}}\n"+
		"  - {key: a, quota_mode: true, limit: 1, descriptors: [{key: c, rate_limit: {unlimited: true}}]}\n")
	want := "d.a.c: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false\n" +
		"d.a: unit=YEAR requests_per_unit=1, shadow_mode: false, quota_mode: true\n" +
		"d.b_x: unit=WEEK requests_per_unit=3, shadow_mode: true, quota_mode: false\n"
	if got := s.Dump(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
