package checkapi_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/checkapi"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/memstore"
)

// asUser returns a check of POST /posts by a user.
func asUser(user, more string) string {
	return `{"attributes":{"method":"POST","path":"/posts","headers":{"X-User":"` + user + `"}}` + more + `}`
}

// Headers and bodies of allowed and denied checks.
func TestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withRules(t, someRules...)
		for _, want := range []string{
			`200 "2" "1" "1800" "" {"allowed":true,"status":200,"limits":[{"rule":"posts-per-user","allowed":true,"limit":2,"remaining":1,` +
				`"retry_after_ms":0,"reset_after_ms":1800000,"delay_ms":0,"source":"store","shadow_denied":false,"exceeds_limit":false}],` +
				`"delay_ms":0,"degraded":null,"reason":""}`,
			`200 "2" "0" "3600" "" {"allowed":true,"status":200,"limits":[{"rule":"posts-per-user","allowed":true,"limit":2,"remaining":0,` +
				`"retry_after_ms":0,"reset_after_ms":3600000,"delay_ms":0,"source":"store","shadow_denied":false,"exceeds_limit":false}],` +
				`"delay_ms":0,"degraded":null,"reason":""}`,
			`429 "2" "0" "1800" "1800" {"allowed":false,"status":429,"limits":[{"rule":"posts-per-user","allowed":false,"limit":2,"remaining":0,` +
				`"retry_after_ms":1800000,"reset_after_ms":3600000,"delay_ms":0,"source":"store","shadow_denied":false,"exceeds_limit":false}],` +
				`"delay_ms":0,"degraded":null,"reason":"Rate limit posts-per-user exceeded; retry in 1800 s."}`,
		} {
			a := s.ask(t, "/v1/check", asUser("ada", ""))
			got := fmt.Sprintf("%d %q %q %q %q %s", a.status, a.header.Get("X-RateLimit-Limit"), a.header.Get("X-RateLimit-Remaining"),
				a.header.Get("X-RateLimit-Reset"), a.header.Get("Retry-After"), strings.TrimSuffix(a.body, "\n"))
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
		s.expect(t, 200, "/v1/check", asUser("bob", ""))
		<-time.After(30 * time.Minute)
		s.expect(t, 200, "/v1/check", asUser("ada", ""))
	})
}

// Durations are rounded up, so that a client that waits this long is not too early.
func TestTimesAreRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withRules(t, "rules: [{name: r, limit: {rate: 7/s, burst: 1}}]")
		s.expect(t, 200, "/v1/check", `{"attributes":{}}`)
		a := s.expect(t, 429, "/v1/check", `{"attributes":{}}`)
		if l := a.Limits[0]; l.RetryAfterMS != 143 || *l.ResetAfterMS != 143 {
			t.Error(a.body)
		}
		<-time.After(time.Duration(a.Limits[0].RetryAfterMS) * time.Millisecond)
		s.expect(t, 200, "/v1/check", `{"attributes":{}}`)
	})
}

// Peeks and a cost of 0 show the state, and the decision for a larger cost.
func TestPeekAndCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withRules(t, `
rules:
  - name: r
    limit: {rate: 10/h, algorithm: fixed_window}
`)
		ask := func(more string) string {
			a := s.ask(t, "/v1/check", `{"attributes":{}`+more+`}`)
			l := a.Limits[0]
			return fmt.Sprintf("%d %d left, retry %v, exceeds limit %t", a.status, *l.Remaining, time.Duration(l.RetryAfterMS)*time.Millisecond, l.ExceedsLimit)
		}
		for _, tt := range []struct{ more, want string }{
			{`,"peek":true`, "200 10 left, retry 0s, exceeds limit false"},
			{`,"cost":0`, "200 10 left, retry 0s, exceeds limit false"},
			{`,"cost":10,"peek":true`, "200 10 left, retry 0s, exceeds limit false"},
			{`,"cost":11,"peek":true`, "429 10 left, retry 0s, exceeds limit true"},
			{`,"cost":11`, "429 10 left, retry 0s, exceeds limit true"},
			{`,"cost":7`, "200 3 left, retry 0s, exceeds limit false"},
			{``, "200 2 left, retry 0s, exceeds limit false"},
			{`,"cost":2,"peek":true`, "200 2 left, retry 0s, exceeds limit false"},
			{`,"cost":3,"peek":true`, "429 2 left, retry 1h0m0s, exceeds limit false"},
			{`,"cost":3`, "429 2 left, retry 1h0m0s, exceeds limit false"},
			{`,"cost":2`, "200 0 left, retry 0s, exceeds limit false"},
			{`,"cost":0`, "429 0 left, retry 1h0m0s, exceeds limit false"},
			{`,"peek":true`, "429 0 left, retry 1h0m0s, exceeds limit false"},
			{`,"peek":true,"cost":5`, "429 0 left, retry 1h0m0s, exceeds limit false"},
		} {
			if got := ask(tt.more); got != tt.want {
				t.Errorf("%s: %s, want %s", tt.more, got, tt.want)
			}
		}
	})
}

// The rules set the cost unless the check does.
func TestCostOfRules(t *testing.T) {
	s := withRules(t, `
rules:
  - name: tokens
    cost: {attr: tokens, max: 50}
    limit: {rate: 100/day, algorithm: fixed_window}
  - name: requests
    limit: {rate: 100/day, algorithm: fixed_window}
`)
	for _, tt := range []struct {
		body             string
		tokens, requests int64
	}{
		{`{"attributes":{"attributes":{"tokens":"30"}}}`, 70, 99},
		{`{"attributes":{"attributes":{"tokens":"60"}},"peek":true}`, 70, 99},
		{`{"attributes":{"attributes":{"tokens":"60"}}}`, 20, 98},
		{`{"attributes":{"attributes":{"tokens":"60"}},"cost":5}`, 15, 93},
		{`{"attributes":{}}`, 14, 92},
	} {
		a := s.expect(t, 200, "/v1/check", tt.body)
		if got := [2]int64{*a.Limits[0].Remaining, *a.Limits[1].Remaining}; got != [2]int64{tt.tokens, tt.requests} {
			t.Errorf("%s: %v remain", tt.body, got)
		}
	}
	if a := s.expect(t, 429, "/v1/check", `{"attributes":{"attributes":{"tokens":"15"}}}`); !a.Limits[1].Allowed || *a.Limits[1].Remaining != 92 {
		t.Errorf("a denied check is charged: %s", a.body)
	}
	a := s.expect(t, 400, "/v1/check", `{"attributes":{"attributes":{"tokens":"many"}}}`)
	if !strings.Contains(a.Detail, "attr:tokens of rule tokens") {
		t.Error(a.Detail)
	}
}

// Results without counting: allow and deny lists, and requests without an attribute that a rule requires.
func TestVerdicts(t *testing.T) {
	s := withRules(t, `
deny:
  - ip: 203.0.113.0/24
allow:
  - header: {X-Probe: "1"}
unmatched: deny
rules:
  - name: named
    match: {path: /named}
    per: ["header:X-User"]
    on_missing: reject
    limit: 1/h
    overrides:
      - {key: root, limit: unlimited}
      - {key: mallory, limit: deny}
`)
	for _, tt := range []struct {
		attributes string
		status     int
		why        string
	}{
		{`"ip":"203.0.113.9","headers":{"X-Probe":"1"}`, 403, "on the deny list"},
		{`"headers":{"x-probe":"1"}`, 200, "on the allow list"},
		{`"path":"/other"`, 403, "no rule matches, and unmatched is deny"},
		{`"path":"/named"`, 403, "rule named: the request lacks an attribute of per"},
		{`"path":"/named","headers":{"X-User":"mallory"}`, 403, "rule named: the request denied by an override or a tier"},
		{`"path":"/named","headers":{"X-User":"root"}`, 200, "no limit applies to the key"},
	} {
		a := s.expect(t, tt.status, "/v1/check", `{"attributes":{`+tt.attributes+`}}`)
		if a.Reason != tt.why || a.Allowed != (tt.status == 200) || len(a.Limits) != 0 {
			t.Errorf("%s: %s", tt.attributes, a.body)
		}
		if a := s.expect(t, 200, "/v1/check", `{"checks":[{"attributes":{`+tt.attributes+`}}]}`); a.Results[0].Status != tt.status || a.Results[0].Reason != tt.why {
			t.Errorf("in a list, %s: %s", tt.attributes, a.body)
		}
	}
	s = withRules(t, "rules: [{name: r, match: {path: /x}, limit: 1/h}]")
	if a := s.expect(t, 200, "/v1/check", `{"attributes":{"path":"/y"}}`); a.Reason != "no rule matches" {
		t.Error(a.body)
	}
}

// The checks of a list are decided one after the other, independently; an invalid one does not affect the others.
func TestSeveral(t *testing.T) {
	s := withRules(t, someRules...)
	a := s.expect(t, 200, "/v1/check", `{"checks":[`+strings.Join([]string{
		asUser("ada", ""), asUser("ada", ""), asUser("ada", ""), asUser("bob", `,"cost":2`),
		`{"attributes":{"path":"/posts%2f"}}`,
		`{"attributes":{"ip":"203.0.113.1"}}`,
		`{"domain":"messaging","descriptors":[[{"key":"message_type","value":"a"}]],"cost":4}`,
		`{"domain":"messaging","descriptors":[[{"key":"message_type","value":"a"}]],"cost":4}`,
		asUser("bob", `,"peek":true`),
	}, ",")+`]}`)
	var got []string
	for _, one := range a.Results {
		text := fmt.Sprint(one.Status)
		if len(one.Limits) > 0 {
			text += fmt.Sprint(" ", *one.Limits[0].Remaining)
		}
		got = append(got, text)
	}
	want := "200 1, 200 0, 429 0, 200 0, 400, 403, 200 1, 429 1, 429 0"
	if strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s\n%s", strings.Join(got, ", "), want, a.body)
	}
	if a.header.Get("X-Ratelimit-Limit") != "" {
		t.Error("the response to a list has headers of one check")
	}
}

// Descriptors are decided as for Envoy.
func TestDescriptors(t *testing.T) {
	s := withRules(t, `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: b, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: s, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: p, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: q, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: free, rate_limit: {unlimited: true}}
`)
	ask := func(keys, more string) string {
		var ds []string
		for _, k := range strings.Fields(keys) {
			ds = append(ds, `[{"key":"`+k+`","value":"x"}]`)
		}
		a := s.ask(t, "/v1/check", `{"domain":"d","descriptors":[`+strings.Join(ds, ",")+`]`+more+`}`)
		text := fmt.Sprint(a.status)
		for _, l := range a.Limits {
			text += fmt.Sprintf(" %s:%d", l.Rule, *l.Remaining)
			if !l.Allowed {
				text += "!"
			}
			if l.ShadowDenied {
				text += "?"
			}
		}
		if a.Reason != "" && len(a.Limits) == 0 {
			text += " " + a.Reason
		}
		return text
	}
	for _, tt := range []struct{ keys, more, want string }{
		{"a", "", "200 d/a:9"},
		{"a b", `,"cost":2`, "200 d/a:7 d/b:1"},
		{"a b", `,"cost":2`, "429 d/a:7 d/b:1!"},
		{"a b", `,"cost":2,"peek":true`, "429 d/a:7 d/b:1!"},
		{"a b", `,"peek":true`, "200 d/a:7 d/b:1"},
		{"a b", `,"cost":0`, "200 d/a:7 d/b:1"},
		{"s", "", "200 d/s:0"},
		{"s", "", "200 d/s:0?"},
		{"s", `,"peek":true,"cost":2`, "200 d/s:0?"},
		{"p q", "", "200 d/p:0 d/q:1"},
		{"p q", `,"peek":true`, "200 d/p:0! d/q:1"},
		{"p q", "", "200 d/p:0! d/q:0"},
		{"p q", "", "429 d/p:0! d/q:0!"},
		{"p q", `,"peek":true`, "429 d/p:0! d/q:0!"},
		{"free", "", "200 no rule of the domain limits these descriptors"},
		{"other", "", "200 no rule of the domain limits these descriptors"},
	} {
		if got := ask(tt.keys, tt.more); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.keys, tt.more, got, tt.want)
		}
	}
	if a := s.expect(t, 200, "/v1/check", `{"domain":"none","descriptors":[[{"key":"a"}]]}`); a.Reason != `there is no domain "none", so no limit applies` {
		t.Error(a.body)
	}
}

// A rule in shadow mode denies no check and reports shadow_denied.
func TestShadow(t *testing.T) {
	s := withRules(t, "rules: [{name: r, shadow: true, limit: 1/h}]")
	for i, want := range []bool{false, true, true} {
		if a := s.expect(t, 200, "/v1/check", `{"attributes":{}}`); a.Limits[0].ShadowDenied != want || !a.Limits[0].Allowed {
			t.Errorf("check %d: %s", i, a.body)
		}
	}
	if a := s.expect(t, 200, "/v1/check", `{"attributes":{},"peek":true,"cost":5}`); !a.Limits[0].ShadowDenied || !a.Limits[0].ExceedsLimit {
		t.Error(a.body)
	}
}

// With on_limit: delay the response has the delay and is sent at once.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withRules(t, `
rules:
  - {name: bucket, match: {path: /bucket}, limit: {rate: 1/s, algorithm: token_bucket}, on_limit: delay, max_delay: 2s}
  - {name: queue, match: {path: /queue}, limit: {rate: 1/s, burst: 3, algorithm: leaky_queue}, on_limit: delay}
`)
		began := time.Now()
		for path, wants := range map[string][]string{
			"/bucket": {"200 0s", "200 1s", "200 2s", "429 0s"},
			"/queue":  {"200 0s", "200 1s", "200 2s", "429 0s"},
		} {
			for _, want := range wants {
				a := s.ask(t, "/v1/check", `{"attributes":{"path":"`+path+`"}}`)
				if got := fmt.Sprint(a.status, " ", time.Duration(a.DelayMS)*time.Millisecond); got != want || a.DelayMS != a.Limits[0].DelayMS {
					t.Errorf("%s: %s, want %s: %s", path, got, want, a.body)
				}
			}
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the responses took %v", waited)
		}
	})
}

// away is a remote store that a test can make unavailable, without a server.
type away struct {
	*memstore.Store
	err atomic.Pointer[error]
}

func (s *away) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return s.Store.Apply(ctx, takes, out)
}

func (s *away) fail(err error) { s.err.Store(&err) }

// While the store is unavailable, fail modes decide, and the response names the one that did.
func TestStoreAway(t *testing.T) {
	store := &away{Store: memstore.New()}
	s := newService(t, store, parseRules(t, `
rules:
  - {name: local, match: {path: /local}, limit: 2/h}
  - {name: open, match: {path: /open}, limit: 2/h, on_failure: open}
  - {name: closed, match: {path: /closed}, limit: 2/h, on_failure: closed}
`, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1, on_failure: closed}}]"))
	store.fail(sluice.ErrUnavailable)
	for _, tt := range []struct {
		body, want string
		unknown    bool
	}{
		{`{"attributes":{"path":"/local"}}`, "200 local", false},
		{`{"attributes":{"path":"/local"}}`, "200 local", false},
		{`{"attributes":{"path":"/local"}}`, "429 local", false},
		{`{"attributes":{"path":"/open"},"cost":2}`, "200 open", true},
		{`{"attributes":{"path":"/open"},"cost":2}`, "200 open", true},
		{`{"attributes":{"path":"/open"},"cost":2,"peek":true}`, "200 open", true},
		{`{"attributes":{"path":"/closed"}}`, "503 closed", true},
		{`{"attributes":{"path":"/closed"},"peek":true}`, "503 closed", true},
		{`{"domain":"d","descriptors":[[{"key":"k","value":"v"}]]}`, "503 closed", true},
	} {
		a := s.ask(t, "/v1/check", tt.body)
		if a.Degraded == nil {
			t.Fatalf("%s: %s", tt.body, a.body)
		}
		l := a.Limits[0]
		if got := fmt.Sprint(a.status, " ", *a.Degraded); got != tt.want || l.Source != *a.Degraded || (l.Remaining == nil) != tt.unknown {
			t.Errorf("%s: %s", tt.body, a.body)
		}
		if got := a.header.Get("X-Ratelimit-Degraded"); got != *a.Degraded {
			t.Errorf("%s: the header is %q", tt.body, got)
		}
		if a.status == 503 && (a.header.Get("Retry-After") != "1" || a.Reason != "Rate limits cannot be checked at the moment; retry in 1 s.") {
			t.Errorf("%s: Retry-After %q, %s", tt.body, a.header.Get("Retry-After"), a.Reason)
		}
	}
	s.limiter.Suspend("closed")
	if a := s.expect(t, 200, "/v1/check", `{"attributes":{"path":"/closed"}}`); *a.Degraded != "suspended" || a.Limits[0].Remaining != nil {
		t.Error(a.body)
	}
	store.fail(fmt.Errorf("%w: on purpose", sluice.ErrInvalid))
	s.expect(t, 500, "/v1/check", `{"attributes":{"path":"/open"}}`)
	s.expect(t, 500, "/v1/check", `{"checks":[{"attributes":{"path":"/open"}}]}`)
	store.err.Store(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	store.fail(context.Canceled)
	if a := s.do(t, post("/v1/check", `{"attributes":{"path":"/open"}}`).WithContext(ctx)); a.status != 503 {
		t.Error(a.status, a.body)
	}
	s.rules = nil
	for _, path := range []string{"/v1/check", "/v1/reserve"} {
		if a := s.expect(t, 503, path, `{"attributes":{}}`); a.Detail != "no rules are loaded yet: send the request again later" {
			t.Error(a.body)
		}
	}
}

// Concurrent checks are allowed exactly up to the limit.
func TestExactUnderConcurrency(t *testing.T) {
	s := withRules(t, someRules...)
	server := newServer(t, s.mux)
	const callers, each = 8, 10 // of 80 checks of a user 2 are allowed
	var allowed, tokens atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				if a := server.ask(t, "/v1/check", asUser("ada", "")); a.status == 200 {
					allowed.Add(1)
				} else if a.status != 429 {
					t.Errorf("%d %s", a.status, a.body)
				}
				// In a list, with cost: 1000 in steps of 7.
				a := server.ask(t, "/v1/check", `{"checks":[{"attributes":{"path":"/tokens"},"cost":7},{"attributes":{"path":"/tokens"},"cost":7}]}`)
				for _, one := range a.Results {
					if one.Allowed {
						tokens.Add(7)
					}
				}
			}
		})
	}
	all.Wait()
	if allowed.Load() != 2 || tokens.Load() != 994 {
		t.Errorf("%d posts and %d tokens were allowed, want 2 and 994", allowed.Load(), tokens.Load())
	}
}

// A new rule set takes effect with the next check.
func TestRulesChange(t *testing.T) {
	s := withRules(t, "rules: [{name: r, limit: {rate: 5/h, algorithm: fixed_window}}]")
	if a := s.expect(t, 200, "/v1/check", `{"attributes":{}}`); a.left(t) != 4 {
		t.Error(a.body)
	}
	s.rules = parseRules(t, "rules: [{name: r, limit: {rate: 9/h, algorithm: fixed_window}}]")
	if a := s.expect(t, 200, "/v1/check", `{"attributes":{}}`); a.left(t) != 7 || a.header.Get("X-Ratelimit-Limit") != "9" {
		t.Error(a.body, a.header)
	}
}

// Clients are authorized for domains as over gRPC: without a certificate, for none.
func TestClients(t *testing.T) {
	s := newService(t, memstore.New(), parseRules(t, someRules...), func(cfg *checkapi.Config) {
		cfg.Descriptors = rls.NewDecider(cfg.Limiter, cfg.Rules, rls.Options{Clients: rls.Clients{"web": {"messaging": true}}})
	})
	ask := `{"domain":"messaging","descriptors":[[{"key":"message_type","value":"a"}]]}`
	for _, path := range []string{"/v1/check", "/v1/reserve"} {
		if a := s.expect(t, 403, path, ask); !strings.Contains(a.Detail, "client certificate required") {
			t.Error(a.body)
		}
	}
	s.expect(t, 403, "/v1/check", `{"checks":[`+asUser("ada", "")+`,`+ask+`]}`)
	if a := s.expect(t, 200, "/v1/check", asUser("ada", "")); a.left(t) != 1 {
		t.Errorf("a rejected list was charged: %s", a.body)
	}
}
