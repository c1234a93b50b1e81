// Package grpclimit provides rate limiting interceptors for gRPC servers.
//
//	limiter, err := sluice.New(memstore.New(), "api", sluice.PerSecond(10))
//	…
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter, grpclimit.ByPeer())),
//		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(limiter, grpclimit.ByPeer())),
//	)
//
// A [KeyFunc] returns the key that a call counts against. All rules of the limiter apply to the key together: either every
// rule is charged or none. If the key depends on the authenticated caller, chain the interceptors after the one that
// authenticates. To apply several rules, use one limiter with several rules instead of chaining interceptors: a chain
// charges the outer limiter for calls that the inner one denies.
//
// # Denied calls
//
// The status is RESOURCE_EXHAUSTED with the details google.rpc.RetryInfo (the exact time) and google.rpc.QuotaFailure
// (the names of the rules that denied, never the key). The trailer grpc-retry-pushback-ms carries the same time in
// milliseconds, rounded up; clients with a retry policy obey it (gRFC A6). It is negative, which means "do not retry", if
// the time exceeds the trailer's maximum of 24 days, or if the cost exceeds the limit; in this case RetryInfo is absent too.
// If the store is unavailable and the rule has [sluice.FailClosed], the status is UNAVAILABLE.
//
// # Allowed calls
//
// The metadata x-ratelimit-limit, x-ratelimit-remaining and x-ratelimit-reset describe the rule with the lowest share
// remaining: the maximum cost at once, the remaining quota, and the seconds, rounded up, until the whole limit is available.
// While the store is unavailable, x-ratelimit-degraded is the fail mode that decided: "local", "open" or "closed". Rules in
// shadow mode are not reported. [WithoutQuotaMetadata] disables all four.
//
// The metadata is sent in the header of successful calls, and in the trailer of failed ones, because gRPC clients do not
// retry a call whose response has header metadata. For the same reason interceptors in front must not set header metadata:
// clients would ignore grpc-retry-pushback-ms. On a denial x-ratelimit-reset is the time to retry; it is absent if the cost
// exceeds the limit.
//
// # Tap handle
//
// [TapHandle] denies a call as soon as its headers are read, before a goroutine is started or a message is read. It
// supports fewer features than the interceptors.
package grpclimit
