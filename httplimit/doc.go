// Package httplimit provides rate limiting middleware for net/http and for routers that wrap it.
//
//	limiter, err := sluice.New(memstore.New(), "api", sluice.PerMinute(100))
//	…
//	handler = httplimit.Middleware(limiter, httplimit.ByIP())(handler)
//
// A [KeyFunc] returns the key that a request counts against: the client's address ([ByIP]), a header ([ByHeader]) or
// several values ([Combine]). There is no default, because behind a proxy all clients have the address of the proxy.
//
// [RulesMiddleware] applies a rule set of package rules, whose limits may depend on the path, the plan or the key and
// may change while the program runs.
//
// # Responses
//
// Allowed responses carry the remaining quota. A denied request gets 429 Too Many Requests with Retry-After and a body
// of type application/problem+json:
//
//	Retry-After: 3
//	X-Ratelimit-Limit: 100
//	X-Ratelimit-Remaining: 0
//	X-Ratelimit-Reset: 3
//	X-Ratelimit-Retry-After: 3
//	Ratelimit-Policy: "api";q=100;w=60
//	Ratelimit: "api";r=0;t=3
//
// Seconds are rounded up and at least 1 on a 429, so that a client that obeys them is not too early; the body has
// milliseconds. X-Ratelimit-Limit is the maximum cost at once. X-Ratelimit-Reset is the time until the whole limit is
// available or, on a 429, until a retry can succeed. In Ratelimit, r/t does not exceed the sustained rate; in a fixed
// window t is the time until its end.
//
// With several rules the X-Ratelimit headers describe the most restrictive decision ([sluice.MostRestrictive]). The
// Ratelimit fields list all rules, on a 429 only those that denied. Rules in shadow mode are not listed. If two
// middlewares wrap a handler, the headers show the lower quota.
//
// X-Ratelimit-Delay is the delay of a delayed request in seconds, such as 0.380. A 429 without Retry-After means that
// the cost exceeds the limit, so that no retry can succeed. While the store is unavailable, X-Ratelimit-Degraded is the
// fail mode that decided: local, open or closed. Open and closed send no quota, because nothing is counted; closed
// responds with 503 Service Unavailable.
//
// For requests with an Origin, Access-Control-Expose-Headers lists these headers. The option [CORS] lets scripts of
// other origins read denials too; it does not count preflights.
//
// # Secrets
//
// Keys may contain secrets such as API keys. This package neither logs keys nor sends them to clients. Package memstore
// stores a keyed hash of a key, unless memstore.Config.KeepKeys is set. Redis and Memcached store keys in clear text:
// hash secrets first, as in the example of [KeyFunc]. Rule files hash attributes that are secrets. The body of a denial
// contains the path without the query.
package httplimit
