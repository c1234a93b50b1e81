// Package ruletest runs test files: files next to rule files that list requests with their times and expected outcomes.
//
//	rules: [posts.yaml]           # default: all rule files of the directory
//	start: 2026-01-01T00:00:00Z   # default
//	tests:
//	  - name: two posts a second
//	    requests:
//	      - {request: POST /posts, headers: {X-User: ada}, times: 3, expect: {allow: 2, deny: 1}}
//	      - {at: 600ms, request: POST /posts, headers: {X-User: ada}, expect: allow, remaining: 0}
//	      - {at: 600ms, descriptor: {domain: auth, entries: {auth_type: login}}, hits: 5, expect: allow}
//
// Requests are processed as in production: [httplimit.NewRulesRequest] reads them, [rules.Set] matches them, and a
// [sluice.Limiter] decides. Only the clock is virtual: it advances to the at of each request, so that a test of a week's
// quota takes no time and is exact to the microsecond. Each test begins with an empty store.
//
// # Expectations
//
// A request that no rule limits is unlimited, not allowed, so that a test with a mistyped path does not pass by accident. A
// request that is rejected before limits, for example by the deny list, is rejected, not denied.
//
// With times, the expectations other than expect are about the last of the requests. Remaining and retry_after are those of
// the rule named by rule, else of the most restrictive one ([sluice.MostRestrictive]), as clients get them: including rules
// in shadow mode, and before the refund of a request that is not charged because of its status. Times are compared to the
// millisecond.
package ruletest
