package interop

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// A scenario is one configuration of both services.
type scenario struct {
	name   string
	rules  []string // of testdata/rules
	random int      // number of additional files with random rules
	env    settings // for both
	sluice settings // for Sluice only
	// plain excludes overrides; see differences.
	plain bool
	// keys is set if both count under the same keys in Redis.
	keys bool
}

var everything = []string{"basic.yaml", "wildcard.yaml", "shared.yaml", "replaces.yaml", "shadow.yaml"}

var scenarios = []scenario{
	{name: "defaults", rules: everything},
	{name: "random rules", random: 5},
	{name: "headers and metadata", rules: everything, env: settings{
		"LIMIT_RESPONSE_HEADERS_ENABLED": "true", "RESPONSE_DYNAMIC_METADATA": "true",
	}},
	{name: "named headers", rules: everything, random: 2, env: settings{
		"LIMIT_RESPONSE_HEADERS_ENABLED": "true", "LIMIT_LIMIT_HEADER": "x-limit", "LIMIT_REMAINING_HEADER": "x-left",
		"LIMIT_RESET_HEADER": "x-reset", "NEAR_LIMIT_RATIO": "0.5", "CACHE_KEY_PREFIX": "pre:",
	}},
	{name: "shadow mode", rules: everything, random: 1, env: settings{"SHADOW_MODE": "true"}},
	{name: "quota rules", rules: []string{"quota.yaml", "basic.yaml"}, env: settings{
		"LIMIT_RESPONSE_HEADERS_ENABLED": "true", "RESPONSE_DYNAMIC_METADATA": "true",
	}},
	{name: "quota mode", rules: everything, random: 1, env: settings{"QUOTA_MODE": "true"}},
	{name: "stop when over", rules: everything, random: 2, env: settings{
		"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "true",
	}},
	{name: "local cache", rules: everything, random: 2, plain: true, env: settings{"LOCAL_CACHE_SIZE_IN_BYTES": "1000000"}},
	{name: "stop when over, local cache", rules: everything, random: 1, plain: true, env: settings{
		"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "true", "LOCAL_CACHE_SIZE_IN_BYTES": "1000000",
	}},
	{name: "merged domains", rules: []string{"merge-a.yaml", "merge-b.yaml"}, env: settings{"MERGE_DOMAIN_CONFIG": "true"}},
	{
		name: "the reference's keys", rules: everything, random: 2, keys: true,
		env: settings{"CACHE_KEY_PREFIX": "pre_"}, sluice: settings{"SLUICE_KEY_FORMAT": "envoy"},
	},
}

// TestSameAnswers sends the same random requests to both services. All answers must be equal, and so must all counters
// that they report at the end.
func TestSameAnswers(t *testing.T) {
	for i := range scenarios {
		s := &scenarios[i]
		t.Run(s.name, func(t *testing.T) {
			for attempt := 0; ; attempt++ {
				begun := time.Now()
				faults := s.run(t, uint64(100*i+attempt))
				if !sameHour(t, begun) && attempt == 0 {
					continue
				}
				for _, fault := range faults {
					t.Error(fault)
				}
				return
			}
		})
	}
}

// pair starts both services, each with its own Redis.
func (s *scenario) pair(t *testing.T, rules map[string]string) (theirs, ours *server) {
	t.Helper()
	env := maps.Clone(s.sluice)
	if env == nil {
		env = settings{}
	}
	maps.Copy(env, s.env)
	theirs = startReference(t, redistest.Start(t), rules, s.env)
	ours = startSluice(t, redistest.Start(t), rules, env)
	return theirs, ours
}

// allRules returns the scenario's files, including the random ones.
func (s *scenario) allRules(t *testing.T, seed uint64) map[string]string {
	t.Helper()
	rules := readRules(t, s.rules...)
	for i := range s.random {
		domain := fmt.Sprintf("random%d", i)
		rules[domain+".yaml"] = randomRules(seed*10+uint64(i), domain)
	}
	return rules
}

// maxFaults is the number of differences after which a run stops.
const maxFaults = 3

func (s *scenario) run(t *testing.T, seed uint64) (faults []string) {
	rules := s.allRules(t, seed)
	theirs, ours := s.pair(t, rules)
	g := newGenerator(t, seed, rules)
	if s.plain {
		g.overrides = nil
	}
	n, seen := soak(1000), tally{}
	for i := range n {
		req := g.request()
		want, got := theirs.ask(t, req), ours.ask(t, req)
		seen.add(want)
		if want = expected(want, s.env); !same(want, got) {
			faults = append(faults, fmt.Sprintf("request %d of seed %d: %s\nwant %s\ngot  %s", i, seed, text(req), want, got))
			if file := req.Domain + ".yaml"; strings.HasPrefix(file, "random") {
				faults = append(faults, rules[file])
			}
			if len(faults) == maxFaults {
				break
			}
		}
	}
	if len(faults) > 0 {
		return faults
	}
	seen.check(t, n)
	faults = append(faults, sameStats(t, theirs, ours)...)
	if s.keys {
		faults = append(faults, sameKeys(t, theirs, ours)...)
	}
	return faults
}

// ask sends a request. An error is an answer, unless the server has exited.
func (s *server) ask(t testing.TB, req *rls.RateLimitRequest) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := s.client.ShouldRateLimit(ctx, req)
	if ctx.Err() != nil {
		t.Fatalf("%s did not respond to %s\n%s", s.name, text(req), s.log)
	}
	return answer{res, err}
}

// A tally checks that a run covered enough cases.
type tally struct{ over, limited, errors int }

func (c *tally) add(a answer) {
	if a.err != nil {
		c.errors++
		return
	}
	for _, s := range a.res.Statuses {
		if s.CurrentLimit != nil {
			c.limited++
		}
		if s.LimitRemaining == 0 && s.CurrentLimit != nil {
			c.over++
		}
	}
}

func (c *tally) check(t *testing.T, n int) {
	t.Helper()
	if c.limited < n/4 || c.over < n/20 || c.errors == 0 || c.errors > n/10 {
		t.Errorf("of the descriptors of %d requests %d were limited and %d over their limit, and %d requests failed: "+
			"the generator does not match the rules", n, c.limited, c.over, c.errors)
	}
}

// sameStats waits until both services have reported the same counters.
func sameStats(t *testing.T, theirs, ours *server) []string {
	t.Helper()
	faults := settle(func() []string {
		want := theirs.statsd.snapshot()
		if want[countedRequests] == 0 || want[countedRequests] != want[timedRequests] {
			return []string{"the reference has not reported all requests yet"}
		}
		return differ(want, ours.statsd.snapshot())
	})
	return faults[:min(len(faults), 20)]
}

const (
	countedRequests = "ratelimit_server.ShouldRateLimit.total_requests"
	timedRequests   = "ratelimit_server.ShouldRateLimit.response_time (timings)"
)

// settle calls look until it returns no differences. Counters are reported at intervals, so that some are missing at
// first.
func settle(look func() []string) []string {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(5 * time.Second); ; <-tick.C {
		if faults := look(); len(faults) == 0 || time.Now().After(end) {
			return faults
		}
	}
}

// sameKeys compares the contents of the two Redis servers.
func sameKeys(t *testing.T, theirs, ours *server) (faults []string) {
	t.Helper()
	want, got := theirs.counters(t), ours.counters(t)
	if len(want) == 0 {
		return []string{"the reference's Redis is empty"}
	}
	return differ(want, got)
}

// counters returns the keys and values of a server's Redis.
func (s *server) counters(t *testing.T) map[string]uint64 {
	t.Helper()
	keys, err := s.redis.Do("KEYS", "*")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]uint64{}
	for key := range strings.SplitSeq(keys, "\n") {
		if key == "" {
			continue
		}
		value, err := s.redis.Do("GET", key)
		if err != nil {
			t.Fatalf("%s: key %q: %v", s.name, key, err)
		}
		var n uint64
		if _, err := fmt.Sscan(value, &n); err != nil {
			t.Fatalf("%s: key %q has the value %q", s.name, key, value)
		}
		all[key] = n
	}
	return all
}
