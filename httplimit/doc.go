// Package httplimit limits HTTP requests: middleware for net/http and for every router that wraps it.
//
//	limiter, err := sluice.New(memstore.New(), "api", sluice.PerMinute(100))
//	…
//	handler = httplimit.Middleware(limiter, httplimit.ByIP())(handler)
//
// A [KeyFunc] says who is limited: [ByIP], [ByHeader] and their like, [Combine] for several at once, or a function of
// your own. It is a required argument because there is no right default: behind a proxy every client has the proxy's
// address.
//
// Where limits depend on the path, the plan or the key, and where they are to change while the program runs, [RulesMiddleware]
// applies a set of package rules:
//
//	handler = httplimit.RulesMiddleware(limiter, func() *rules.Set { return set })(handler)
//
// # What callers see
//
// An allowed response carries the quota that is left. A denied one is 429 Too Many Requests with Retry-After and a
// body of application/problem+json:
//
//	Retry-After: 3
//	X-Ratelimit-Limit: 100
//	X-Ratelimit-Remaining: 0
//	X-Ratelimit-Reset: 3
//	X-Ratelimit-Retry-After: 3
//	Ratelimit-Policy: "api";q=100;w=60
//	Ratelimit: "api";r=0;t=3
//
// Seconds are rounded up and never 0 on a 429, so that a caller who obeys them is not too early; the body has
// milliseconds. X-Ratelimit-Limit is the most that can be spent at once, X-Ratelimit-Reset the seconds until all of it
// is available again or, on a 429, until a retry can succeed. In Ratelimit, t is never so short that r in t seconds would exceed the sustained rate, except in
// a fixed window, where t is what is left of it. With several rules the X-Ratelimit headers describe the one that
// matters most ([sluice.MostRestrictive]) and the Ratelimit fields list them all; on a 429 Ratelimit lists those that denied.
// Callers are told nothing of rules in shadow mode, which never deny. Where the middleware is used twice around a handler, the tighter quota is shown.
//
// A request that had to wait for its turn is told for how long in X-Ratelimit-Delay, in seconds: 0.380.
//
// A cost that can never fit is a 429 without Retry-After: waiting does not help. While the store cannot answer,
// X-Ratelimit-Degraded says which fail mode decided (local, open or closed). Nobody counts while a rule is open or
// closed, so no quota is sent; closed is 503 Service Unavailable.
//
// Requests with an Origin have the headers named in Access-Control-Expose-Headers, so that scripts can read them. The option
// [CORS] lets scripts of other origins read denials too, and answers preflights without counting them.
//
// # Secrets
//
// Keys may hold secrets: API keys, session cookies. This package neither logs them nor sends them to clients. Package memstore
// stores a keyed hash of a key, unless memstore.Config.KeepKeys is set. Redis and Memcached store keys in clear, as part of
// the names of their entries: hash secrets before they become keys there.
//
//	secret := httplimit.ByHeader("X-Api-Key")
//	hashed := func(r *http.Request) (string, error) {
//		key, err := secret(r)
//		sum := sha256.Sum256([]byte(key))
//		return hex.EncodeToString(sum[:]), err
//	}
//
// Rule files hash attributes that are secrets. The body of a denial holds the request's path, without the query.
package httplimit
