// Package gateway is a reverse proxy that applies rules to requests before it forwards them to an upstream.
//
// A request passes these steps in order. The gateway itself responds to requests that a step rejects, sheds or denies, with
// application/problem+json:
//
//	target     canonical method, host, path and query, or 400
//	headers    headers that a client must not set are removed
//	addresses  allow and deny lists: 403
//	route      the most specific by host and path, or 404
//	body       too large: 413
//	identity   authentication: 401
//	shed       overload: 503
//	limit      rules: 429, a delay, or the durable queue (202)
//	forward    to the upstream
//
// The path that routes and rules match is the path that is forwarded: it is converted to its canonical form first, and a path
// without a canonical form is rejected.
package gateway
