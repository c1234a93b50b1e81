// Package ruletest runs tests of rules: files that stand beside the rules and say which requests are sent when, and
// what must become of each.
//
//	rules: [posts.yaml]           # default: all rule files of the directory
//	start: 2026-01-01T00:00:00Z   # default
//	tests:
//	  - name: two posts a second
//	    requests:
//	      - {send: POST /posts, headers: {X-User: ada}, times: 3, expect: {allow: 2, deny: 1}}
//	      - {at: 600ms, send: POST /posts, headers: {X-User: ada}, expect: allow, remaining: 0}
//	      - {at: 600ms, descriptor: {domain: auth, entries: {auth_type: login}}, hits: 5, expect: allow}
//
// Requests take the way they take in production: [httplimit.NewRulesRequest] reads them, [rules.Set] matches them, a
// [sluice.Limiter] decides. Only the clock is another: it stands still but for the at of the requests, so that a test
// of a week's quota takes no time and is exact to the microsecond. Each test begins with an empty store.
//
// # Expectations
//
// A request that no rule limits is unlimited, not allowed: a test with a typing error in the path does not pass by
// accident. One that is turned away before anything is counted, by the deny list, say, is refused, not denied.
//
// With times, what is asserted beside expect is about the last of the requests. Remaining and retry_after are those of
// the rule that is named, else of the one that matters most to the caller ([sluice.MostRestrictive]), as the caller is told
// them: rules in shadow included, and before a request that is not charged by its outcome is given back. Times are
// compared to the millisecond.
package ruletest
