// Package upstream forwards requests to a group of servers.
//
// A [Group] is an http.Handler: it chooses a server, hands it the request, and hands its answer back as it comes. It
// checks its servers, ejects those that fail, and tries another where that is safe. It decides nothing about whether a
// request may pass and trusts nothing in it: who it is for is the configuration's choice alone.
//
// # Which server
//
// [Config.LoadBalancing] chooses among the servers that are neither down by their health check nor ejected. If none is left,
// all are used: a check that is wrong must not turn an outage of some into an outage of everything.
//
// # What is tried again
//
// A request that no byte was sent of, because its connection could not be made, goes to another server, whatever it is.
// A request whose connection ended before a byte of the answer goes to another server if its method is safe to repeat
// and it has no body, and only as long as such retries are few beside the requests. So does one that a server of HTTP/2
// declares unprocessed, whatever its method, if its body is held. Nothing else is ever sent twice: no POST of which a byte
// was written otherwise, nothing whose answer has begun.
//
// # What counts against a server
//
// Not what a request causes: one that cannot be sent, that the server calls malformed or too large, or whose connection
// ends while its head is larger than all servers accept or its body is still being sent.
//
// # What callers see
//
// 502, 503 and 504 are answered as application/problem+json that says nothing of the inside; the reasons are logged. An
// answer that breaks off is broken off for the caller too, by panicking with http.ErrAbortHandler: it never looks whole.
// A caller that left is counted as 499, which it does not see.
package upstream
