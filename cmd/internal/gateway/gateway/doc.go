// Package gateway is a proxy that stands before any API and applies rules to what reaches it.
//
// A request walks one line. What is refused on the way is answered here, as application/problem+json, and goes no
// further:
//
//	target     one reading of method, host, path and query, or 400
//	headers    what a client must not say is dropped
//	addresses  allow and deny lists: 403
//	route      the most specific by host and path, or 404
//	body       too large: 413
//	who        authentication: 401
//	shed       overload: 503
//	limit      httplimit.RulesMiddleware: 429, a wait, or the queue
//	forward    to the upstream
//
// The path that routes and rules match is the path that is forwarded: package rules gives it its one form before
// anything looks at it, and what cannot be given one is refused.
package gateway
