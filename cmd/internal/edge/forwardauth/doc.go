// Package forwardauth implements forward authentication: a proxy sends a subrequest for each request, and the status of the
// response decides whether the request is allowed. It supports nginx (auth_request), Caddy (forward_auth), Traefik
// (ForwardAuth) and HAProxy (a Lua script).
//
// The subrequest has the headers of the request, and these headers set by the proxy:
//
//	X-Forwarded-Method: POST
//	X-Forwarded-Uri: /posts?draft=1
//	X-Forwarded-Host: api.example.com
//	X-Forwarded-For: 203.0.113.7
//
// The handler reconstructs the request and decides it as httplimit.RulesMiddleware would. The response is 204, or the
// response of the middleware (429, 403, 400 and so on) with headers and body for the client.
//
// The first three headers are trusted, so that only proxies may be able to reach the handler. Each must occur exactly once:
// if one were optional, a client of a proxy that does not set it could forge it, and of two values one would be the client's.
// There is only one set of names, also for nginx, which could set any, so that a client cannot choose between them.
// X-Forwarded-For is evaluated by the client_ip of the rules.
//
// nginx supports only 401 and 403; it treats a 429 as an error and responds with 500. With [ForNginx] the status of every
// denied or rejected request is 403. The actual status is in X-Sluice-Status and the body in X-Sluice-Body, because nginx
// drops the body of the subrequest.
package forwardauth
