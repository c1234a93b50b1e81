package ruletest_test

import (
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/ruletest"
	"github.com/sluiceproject/sluice/rules"
)

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Every file that can be read as a test file can be run.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{ // short, because the fuzzer spends its time on shortening them
		"rules: [a.yaml]\nstart: 2026-01-01\ntests: [{name: a, requests: [{request: /, expect: allow}]}]",
		"tests: [{name: a, requests: [{at: 1d, request: 'PUT http://h/?a=b', times: 3, expect: {allow: 2, deny: 1}}]}]",
		"tests: [{name: a, requests: [{request: /, expect: deny, retry_after: 500ms}]}]",
		"tests:\n- name: a\n  requests:\n  - {request: /, headers: {X-User: [a, b]}, cookies: {c: d}, expect: reject}",
		"tests: [{name: a, requests: [{request: /, claims: {c: d}, attributes: {e: f}, ip: '::1', status: 401, expect: deny}]}]",
		"tests: [{name: a, requests: [{descriptor: {domain: d, entries: [{k: v}]}, hits: 2, expect: unlimited}]}]",
		"tests: [{name: a, requests: [{request: /, reserve: 5, as: a, expect: allow}, {at: 5s, settle: {a: 10}, remaining: 0, forgiven: 1}]}]",
		"tests: [{name: a, requests: [{descriptor: {domain: d, entries: [{k: v}]}, reserve: 2, as: b, expect: unlimited}, {settle: {b: 0}}]}]",
		"tests: [{name: a, requests: [{request: /, expect: allow, rule: a, remaining: {all: 1}, delay: 0s, shadow: b}]}]",
	} {
		f.Add([]byte(seed))
	}
	set, err := rules.New(rules.Config{Rules: []rules.Rule{{
		Name: "all", Per: []rules.Ref{{Name: "header:X-User"}}, Limits: []rules.Limit{{Limit: sluice.PerSecond(2)}},
	}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := ruletest.Parse("a_test.yaml", data)
		if err != nil {
			if file != nil {
				t.Error("a file with errors is returned")
			}
			return
		}
		sends := 0
		for _, test := range file.Tests {
			if test.Name == "" || len(test.Requests) == 0 {
				t.Errorf("test %q has %d requests", test.Name, len(test.Requests))
			}
			for i, q := range test.Requests {
				sends += q.Times
				if q.Times < 1 || i > 0 && q.Offset < test.Requests[i-1].Offset || one(q.HTTP != nil)+one(q.Descriptors != nil)+one(q.Settle != nil) != 1 || (q.Reserve > 0) != (q.As != "") {
					t.Errorf("%v: %+v", q.At, q)
				}
			}
		}
		if sends > 10_000 {
			return
		}
		file.Set = set
		if _, err := file.Run(t.Context(), all); err != nil {
			t.Error(err)
		}
	})
}
