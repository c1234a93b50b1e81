// Package upstream forwards requests to a group of servers.
//
// A [Group] is an http.Handler: it chooses a server, forwards the request, and streams the response back. It runs health
// checks, ejects failing servers (outlier detection), and retries on another server if that is safe. It makes no decision
// whether a request is allowed. Nothing in a request affects where it is sent, only the configuration does.
//
// # Load balancing
//
// [Config.LoadBalancing] chooses among the servers that are neither unhealthy nor ejected. If none is left, all servers are
// used, because a wrong health check must not turn a partial outage into a complete one.
//
// # Retries
//
//   - A request of which no byte was sent, because the connection failed, goes to another server, whatever its method.
//   - A request whose connection ended before the first byte of the response goes to another server if its method is
//     idempotent and it has no body, within the retry budget.
//   - So does a request that an HTTP/2 server declares unprocessed, whatever its method, if its body is buffered.
//   - No other request is sent twice: no POST of which a byte was written, and none whose response has started.
//
// # Failures
//
// Failures that a request causes do not count against a server: the request cannot be sent, the server rejects it as
// malformed or too large, or the connection ends while the head is larger than all servers accept or while the body is
// still being sent.
//
// # Responses
//
// 502, 503 and 504 are sent as application/problem+json without internal details; the reasons are logged. If a response of a
// server is truncated, the response to the caller is aborted too, by a panic with http.ErrAbortHandler, so that it never
// looks complete. A caller that disconnected is recorded as 499.
package upstream
