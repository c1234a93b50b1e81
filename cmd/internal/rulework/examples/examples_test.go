package examples_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/examples"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// Every kind of rule has an example of each outcome, with the numbers that the middleware sends.
func TestRecord(t *testing.T) {
	for rule, want := range map[string][]string{
		"limit: 10/min":         {"429 retry 6"},
		"limit: 10/s":           {"429 retry 1"},
		"limit: [10/min, 20/h]": {"429 retry 6"},
		"limit: 1M/day":         {"429 retry 1"},
		"limit: 2/h, cost: 3":   {"429 retry "},
		"limit: {rate: 2/h, algorithm: fixed_window}":                                             {"429 retry 3600"},
		"limit: {rate: 2/h, algorithm: fixed_window, soft_excess: 2, soft_period: 10s}":           {"429 retry 3600"},
		"limit: {rate: 2/h, algorithm: sliding_window_log}":                                       {"429 retry 3600"},
		"limit: {rate: 9/day, align: calendar}":                                                   {"429 retry 43200"},
		"limit: {concurrent: 3}":                                                                  {"429 retry 1"},
		"limit: [{concurrent: 30}, 2/h]":                                                          {"429 retry 1800"},
		"limit: [{concurrent: 2}, 30/h]":                                                          {"429 retry 1"},
		"limit: 2/h, charge: always":                                                              {"429 retry 1800"},
		"limit: 2/h, enforce: 1%":                                                                 {"429 retry 1800"},
		"limit: 2/h, on_failure: closed":                                                          {"429 retry 1800", "503 retry 1"},
		"limit: 2/h, denial: {status: 403}":                                                       {"403 retry 1800"},
		"limit: 2/h, denial: {status: 503, body: later}":                                          {"503 retry 1800"},
		"limit: 2/h, denial: {status: 403}, on_failure: closed":                                   {"403 retry 1800", "503 retry 1"},
		"limit: 2/h, denial: {status: 403}, cost: 3":                                              {"429 retry "}, // it has the default response
		"limit: 2/h, denial: {status: 403}, on_limit: queue":                                      {"202 retry 1800", "403 retry 1800"},
		"limit: {rate: 1/min, burst: 3}, on_limit: delay, denial: {status: 403}":                  {"200 retry  delay 60.000", "403 retry 60"},
		"limit: {concurrent: 3}, denial: {status: 403}":                                           {"403 retry 1"},
		"limit: {rate: 1k/s, burst: 5k}, on_limit: delay, max_delay: 2ms":                         {"200 retry  delay 0.001", "429 retry 1"},
		"limit: {rate: 1/min, burst: 6}, on_limit: delay, cost: 2":                                {"200 retry  delay 120.000", "429 retry 120"},
		"limit: {rate: 2/h, burst: 9, initial: 3}":                                                {"429 retry 1800"},
		"limit: [{rate: 2/h, initial: 0}, 9/h]":                                                   {"429 retry 1800"},
		"limit: 2/h, on_limit: queue":                                                             {"202 retry 1800", "429 retry 1800"},
		"limit: {rate: 1/min, burst: 3}, on_limit: delay":                                         {"200 retry  delay 60.000", "429 retry 60"},
		"limit: {rate: 1/min, burst: 3, algorithm: token_bucket}, on_limit: delay, max_delay: 2m": {"200 retry  delay 60.000", "429 retry 60"},
		"limit: {rate: 1k/s, burst: 5k}, on_limit: delay":                                         {"200 retry  delay 0.001"},
		"limit: 2/h, match: {method: [PUT, POST], host: '*.example.com', path: '/a/{id}/*.png', header: {X-A: {prefix: b}}, query: {q: x}, ip: 10.0.0.0/8}": {"429 retry 1800"},
		"limit: 2/h, match: {user: {present: true}, attr: {plan: pro}}, per: [user, ip, 'cookie:sid'], on_missing: reject":                                  {"429 retry 1800"},
		"limit: 2/h, match: {path: {regex: '^/x+$'}}": nil,
	} {
		cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "rules.yaml", Data: []byte(
			"attributes: {user: {jwt: sub}}\nrules:\n  - {name: r, " + rule + "}\n  - {name: secret, hidden: true, limit: 1/day}\n")})
		if err != nil {
			t.Fatal(err)
		}
		set, err := rules.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		all, err := examples.Record(set, &set.Config().Rules[0])
		var got []string
		for _, e := range all {
			text := e.Status[:3] + " retry " + header(&e, "Retry-After")
			if delay := header(&e, "X-Ratelimit-Delay"); delay != "" {
				text += " delay " + delay
			}
			got = append(got, text)
			if strings.Contains(fmt.Sprint(e), "secret") {
				t.Errorf("%s: an example shows a hidden rule: %v", rule, e)
			}
		}
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %q, want %q: %v", rule, got, want, err)
		}
	}
}

// The example of a rule has its own status and body, even if a stricter rule matches the request too.
func TestRecordOwn(t *testing.T) {
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "rules.yaml", Data: []byte(`
rules:
  - {name: loose, match: {path: /a}, limit: 100/min, denial: {status: 403, body: "loose {limit}"}}
  - {name: strict, limit: 2/s, denial: {status: 420, body: strict}}
  - {name: slow, match: {path: /a}, limit: {rate: 1/s, burst: 2}, on_limit: delay, denial: {status: 418, body: slow}}
`)})
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"over the limit 403 loose 100/min", "over the limit 420 strict", "over the limit, delayed 200 ; over the limit 418 slow"} {
		all, err := examples.Record(set, &set.Config().Rules[i])
		var got []string
		for _, e := range all {
			got = append(got, e.When+" "+e.Status[:3]+" "+e.Body)
		}
		if text := strings.Join(got, "; "); err != nil || text != want {
			t.Errorf("%s: %q, want %q: %v", set.Config().Rules[i].Name, text, want, err)
		}
	}
}

func header(e *examples.Response, name string) string {
	for _, h := range e.Headers {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}
