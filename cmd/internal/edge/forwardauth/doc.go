// Package forwardauth answers proxies that ask for each request whether it may pass: nginx's auth_request, Caddy's
// forward_auth, Traefik's ForwardAuth, and HAProxy with a few lines of Lua.
//
// The proxy sends the headers of the request that it is about, and says the rest in headers of its own:
//
//	X-Forwarded-Method: POST
//	X-Forwarded-Uri: /posts?draft=1
//	X-Forwarded-Host: api.example.com
//	X-Forwarded-For: 203.0.113.7
//
// From these the request is put together again, and [httplimit.RulesMiddleware] decides about it as if it had arrived here. The
// answer is 204 or whatever the middleware says: 429, 403, 400 and so on, with headers and body for the client.
//
// The first three are taken from the proxy's word, so nobody else may be able to ask. All three must be there, once
// each. If one could be left out, a client of a proxy that does not set it could; and if it were there twice, one of
// them would be the client's. There is one set of names and not a second one for nginx, which can set any, so that a
// client has nothing to choose from. X-Forwarded-For is read as the rules' client_ip says.
//
// nginx takes a 429 for a fault and answers 500; it knows 401 and 403. With [ForNginx] all that is refused is a 403; the
// true status is in X-Sluice-Status, and the body in X-Sluice-Body, since nginx drops the one that it is given.
package forwardauth
