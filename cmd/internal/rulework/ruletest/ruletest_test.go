package ruletest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/ruletest"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

func all(string) bool { return true }

// load writes a rule file and a test file and loads both.
func load(t *testing.T, ruleText, testText string) ([]*ruletest.File, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"rules.yaml": ruleText, "rules_test.yaml": testText} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return ruletest.Load(rulefile.Options{}, dir)
}

// results runs tests and returns their results.
func results(t *testing.T, ruleText, testText string) []ruletest.Result {
	t.Helper()
	files, err := load(t, ruleText, testText)
	if err != nil {
		t.Fatal(err)
	}
	r, err := files[0].Run(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// passes runs tests that must all pass.
func passes(t *testing.T, ruleText, testText string) {
	t.Helper()
	for _, r := range results(t, ruleText, testText) {
		for _, f := range r.Failures {
			why := strings.Join(f.Why, "\n")
			t.Errorf("%s: %v: %s: want %s %s, got %s\n%s", r.Test.Name, f.At, f.Request, f.Field, f.Want, f.Got, why)
		}
	}
}

// A week's quota takes a week of virtual time and no real time.
func TestWeek(t *testing.T) {
	const quota = "rules:\n  - {name: quota, per: header:X-User, limit: 1000/week, algorithm: sliding_window_log}\n"
	r := results(t, quota, `
tests:
  - name: a week
    requests:
      - {request: /, headers: {X-User: ada}, times: 1001, expect: {allow: 1000, deny: 1}, retry_after: 7d}
      - {at: 6d23h59m59.999s, request: /, headers: {X-User: ada}, expect: deny, retry_after: 1ms}
      - {at: 1w, request: /, headers: {X-User: ada}, times: 1000, expect: allow}
      - {at: 52w, request: /, headers: {X-User: ada}, times: 1000, expect: allow, remaining: 0}
`)
	if !r[0].Passed() {
		t.Fatalf("%+v", r[0].Failures)
	}
	if r[0].Virtual != 52*7*24*time.Hour || r[0].Requests != 3002 {
		t.Errorf("%v and %d requests", r[0].Virtual, r[0].Requests)
	}
}

// Each test begins with an empty store, at the start time.
func TestTestsAreApart(t *testing.T) {
	passes(t, "rules:\n  - {name: one, limit: {rate: 1/day, align: calendar}}\n", `
start: 2026-05-31T23:59:59+00:00
tests:
  - name: first
    requests: [{request: /, expect: allow}, {request: /, expect: deny, retry_after: 1s}, {at: 1s, request: /, expect: allow}]
  - name: second
    requests: [{request: /, expect: allow}, {request: /, expect: deny, retry_after: 1s}]
`)
}

// Every part of a request reaches the rules.
func TestRequestParts(t *testing.T) {
	passes(t, `
attributes:
  user: {claim: sub}
unmatched: deny
rules:
  - {name: header, match: {header: {X-Given: {present: true}}}, limit: 1/s}
  - {name: cookie, match: {cookie: {session: s1}}, limit: 1/s}
  - {name: claim, match: {user: ada}, limit: 1/s}
  - {name: attr, match: {attr: {region: eu}}, limit: 1/s}
  - {name: host, match: {host: api.example.com}, limit: 1/s}
  - {name: query, match: {query: {draft: "1"}}, limit: 1/s}
  - {name: ip, match: {ip: 2001:db8::/32}, limit: 1/s}
  - {name: segment, match: {method: PUT, path: "/users/{id}"}, per: "path:id", limit: 1/s}
  - {name: twice, match: {path: /twice}, per: "header:X-User", limit: 1/s}
`, `
tests:
  - name: parts
    requests:
      - {request: GET /, headers: {X-Given: "1"}, expect: allow, rule: header}
      - {request: GET /, headers: {X-Given: ""}, expect: reject}
      - {request: GET /, cookies: {other: a, session: s1}, expect: allow, rule: cookie}
      - {request: GET /, claims: {sub: ada}, expect: allow, rule: claim}
      - {request: GET /, attributes: {region: eu}, expect: allow, rule: attr}
      - {request: GET https://api.example.com/x, expect: allow, rule: host}
      - {request: "GET /?draft=1", expect: allow, rule: query}
      - {request: /, ip: 2001:db8::1, expect: allow, rule: ip}
      - {request: PUT /users/7, expect: allow, rule: segment}
      - {request: PUT /users/7, expect: deny, rule: segment}
      - {request: PUT /users/8, expect: allow, rule: segment}
      - {request: GET /, headers: {Host: api.example.com}, expect: deny, rule: host}
      - {request: GET /twice, headers: {X-User: [ada, bob]}, expect: reject}
      - {request: GET /, expect: reject}
`)
}

// Descriptors are matched and counted like in Envoy's service.
func TestDescriptors(t *testing.T) {
	passes(t, `
domain: mail
descriptors:
  - key: to
    rate_limit: {name: per-recipient, unit: hour, requests_per_unit: 2}
    descriptors:
      - {key: kind, value: reset, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: plan, value: trial, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: plan, value: vip, rate_limit: {unlimited: true}}
`, `
tests:
  - name: order and repetition
    requests:
      - {descriptor: {domain: mail, entries: {to: ada}}, hits: 2, expect: allow, rule: per-recipient, remaining: 0}
      - {descriptor: {domain: mail, entries: {to: ada}}, expect: deny, rule: per-recipient, retry_after: 1h}
      - {descriptor: {domain: mail, entries: {to: bob, kind: reset}}, times: 2, expect: {allow: 1, deny: 1}}
      - {descriptor: {domain: mail, entries: {kind: reset, to: bob}}, expect: unlimited}
      - {descriptor: {domain: mail, entries: {plan: vip}}, expect: unlimited}
      - {descriptor: {domain: mail, entries: {plan: trial}}, times: 2, expect: allow, shadow: mail/plan=trial}
      - {descriptor: {domain: mail, entries: [{to: eve}, {to: dan}]}, hits: 2, expect: allow, remaining: 0}
      - {descriptor: {domain: post, entries: {to: ada}}, expect: unlimited}
`)
}

func TestFaultsNameTheirPlace(t *testing.T) {
	_, err := load(t, "rules:\n  - {name: posts-per-user, limit: 1/s}\n", `
tests:
  - name: a
    requests:
      - {request: /, expect: allow, rule: posts-per-usr}
      - {request: /, expect: allow, shadow: post}
      - {request: /, expect: allow, remaining: {posts: 1}}
`)
	faults := err.(interface{ Unwrap() []error }).Unwrap()
	if len(faults) == 1 {
		faults = faults[0].(interface{ Unwrap() []error }).Unwrap()
	}
	want := []string{"_test.yaml:5:43: rule: ", "_test.yaml:6:45: shadow: ", "_test.yaml:7:49: remaining: "}
	for i, fault := range faults {
		var e *rules.Error
		if !errors.As(fault, &e) || !strings.Contains(fault.Error(), want[i]) {
			t.Errorf("fault %d is %v, want %s", i, fault, want[i])
		}
	}
	if len(faults) != len(want) || !strings.Contains(faults[0].Error(), `did you mean "posts-per-user"?`) {
		t.Errorf("%d faults: %v", len(faults), err)
	}
}

func TestLoadFaults(t *testing.T) {
	const oneRule = "rules: [{name: a, limit: 1/s}]\n"
	const oneTest = "tests: [{name: a, requests: [{request: /, expect: allow}]}]\n"
	request := func(text string) string { return "tests: [{name: a, requests: [{" + text + "}]}]" }
	for _, test := range []struct{ rules, tests, want string }{
		{"rules: [{name: a}]\n", oneTest, "rules.yaml:1:"},
		{oneRule, "rules: nowhere.yaml\n" + oneTest, "rules_test.yaml:1:8: rules: nowhere.yaml cannot be read: "},
		{oneRule, "", "the file is empty"},
		{oneRule, "tests: []", "there are no tests"},
		{oneRule, "rules: [rules.yaml]", "there are no tests"},
		{oneRule, "tests: [", "rules_test.yaml:1:"},
		{oneRule, request("request: /, expect: {reject: 1}"), "write expect: reject"},
		{oneRule, request("request: /, expect: {allow: 0}"), "there are no numbers"},
		{oneRule, request("request: /, times: 1000001, expect: allow"), "not between 1 and 1000000"},
		{oneRule, request("request: GET http://a b/, expect: allow"), "is not a host"},
		{oneRule, request("request: 'GET /a b', expect: allow"), "%20"},
		{oneRule, request("at: 4000d, request: /, expect: allow"), "at most 3660d"},
		{oneRule, "domain: a\n" + oneTest, "a test file has no rules"},
	} {
		if _, err := load(t, test.rules, test.tests); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q, %q: %v, want %q", test.rules, test.tests, err, test.want)
		}
	}
	if _, err := ruletest.Load(rulefile.Options{}, t.TempDir()); !errors.Is(err, ruletest.ErrNone) {
		t.Errorf("an empty directory: %v", err)
	}
}

// A cancelled run ends with an error and without a result.
func TestCancelled(t *testing.T) {
	files, err := load(t, "rules: [{name: a, limit: 1/s}]\n", "tests: [{name: a, requests: [{request: /, expect: allow}]}]\n")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := files[0].Run(ctx, all); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Requests are in flight for their duration, also if that is longer than the permit TTL, and hold no permit if they are
// denied.
func TestInFlight(t *testing.T) {
	const flight = "rules:\n  - {name: flight, per: header:X-User, limit: [4/day, {concurrent: 2, permit_ttl: 10s}]}\n"
	passes(t, flight, `
tests:
  - name: they end
    requests:
      - {request: /, headers: {X-User: ada}, duration: 5s, expect: allow, remaining: {flight#2: 1}}
      - {at: 1s, request: /, headers: {X-User: ada}, duration: 1h, expect: allow, remaining: {flight#2: 0}}
      - {at: 2s, request: /, headers: {X-User: ada}, duration: 1h, expect: deny, rule: flight#2, retry_after: 1s}
      - {at: 2s, request: /, headers: {X-User: bob}, duration: 1h, expect: allow}
      - {at: 4999ms, request: /, headers: {X-User: ada}, expect: deny}
      - {at: 5s, request: /, headers: {X-User: ada}, expect: allow}
      - {at: 5s, request: /, headers: {X-User: ada}, duration: 2h, expect: allow, remaining: {flight: 0, flight#2: 0}}
      - {at: 30m, request: /, headers: {X-User: bob}, duration: 2h, expect: allow, remaining: {flight#2: 0}}
      - {at: 1h1s, request: /, headers: {X-User: ada}, expect: deny, rule: flight}
      - {at: 1h2s, request: /, headers: {X-User: bob}, times: 2, expect: allow}
  - name: at once
    requests:
      - {request: /, headers: {X-User: ada}, times: 3, duration: 1s, expect: {allow: 2, deny: 1}}
      - {at: 1s, request: /, headers: {X-User: ada}, times: 3, expect: {allow: 2, deny: 1}, rule: flight}
`)
	_, err := load(t, flight, "tests: [{name: a, requests: [{request: /, duration: soon, expect: allow}]}]")
	if err == nil || !strings.Contains(err.Error(), `duration: is "soon"`) {
		t.Error(err)
	}
}

// Errors about reservations have a position and say what to write instead.
func TestReservationFaults(t *testing.T) {
	const before = "tests:\n  - name: t\n    requests:\n      - {request: /, reserve: 5, as: first, expect: allow}\n      - "
	for line, want := range map[string]string{
		"{request: /, reserve: 5, expect: allow}":                                                   `rules_test.yaml:5:31: reserve: the reservation has no name: add one, such as as: a`,
		"{request: /, as: b, expect: allow}":                                                        `rules_test.yaml:5:26: as: needs reserve: add reserve: 5`,
		"{request: /, reserve: 5, as: first, expect: allow}":                                        `as: the reservation at line 4 has the same name "first": rename one`,
		"{request: /, reserve: 5, as: b, actual_cost: 5, expect: allow}":                            `actual_cost: cannot be combined with reserve: write the actual cost as settle: {b: 10}`,
		"{request: /, reserve: 5, as: b, times: 2, expect: allow}":                                  `times: cannot be combined with reserve`,
		"{settle: {frist: 10}}":                                                                     `rules_test.yaml:5:19: settle: no request above is reserved as "frist": did you mean "first"?`,
		"{settle: {}}":                                                                              `settle: is empty: write the actual cost of a reservation, {a: 10}`,
		"{settle: {first: 10}, expect: allow}":                                                      `expect: cannot be combined with settle: write two entries`,
		"{settle: {first: 10}, request: /}":                                                         `request: cannot be combined with settle: write two entries`,
		"{request: /, expect: allow, forgiven: 1}":                                                  `forgiven: needs settle`,
		"{settle: {first: 10}, remaining: {on: 1}}":                                                 `remaining: there is no rule "on": did you mean "one"?`,
		"{descriptor: {domain: d, entries: {a: b}}, reserve: 1, as: b, hits: 2, expect: unlimited}": `hits: cannot be combined with reserve`,
	} {
		_, err := load(t, "rules: [{name: one, limit: 10/s}]\n", before+line+"\n")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

// A failed expectation of a settlement shows the settlement and the state.
func TestSettleFails(t *testing.T) {
	r := results(t, "rules: [{name: one, limit: {rate: 10/min, algorithm: fixed_window}}]\n", `
tests:
  - name: wrong
    requests:
      - {request: /, reserve: 5, as: a, expect: allow, remaining: 5}
      - {at: 1s, settle: {a: 7}, remaining: 4, forgiven: 1}
      - {at: 2s, request: /, reserve: 5, as: denied, expect: deny}
      - {at: 3s, settle: {denied: 7}, remaining: 3}
`)
	var got []string
	for _, f := range r[0].Failures {
		got = append(got, f.At.String()[len(f.At.File):]+" "+f.Request+": want "+f.Field+" "+f.Want+", got "+f.Got)
	}
	want := []string{
		":6:45 settle a at 7, at 1s: want remaining 4, got 3 of one",
		":6:58 settle a at 7, at 1s: want forgiven 1, got 0",
		":8:50 settle denied at 7, at 3s: want remaining 3, got unlimited: nothing was reserved",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
