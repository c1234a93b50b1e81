// Package grpclimit limits the calls that a gRPC server takes.
//
//	limiter, err := sluice.New(memstore.New(), "api", sluice.PerSecond(10))
//	…
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter, grpclimit.ByPeer())),
//		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(limiter, grpclimit.ByPeer())),
//	)
//
// A [KeyFunc] says whom a call is charged to, and the limiter's rules apply to that key all or nothing. Put the
// interceptors behind those that authenticate if the key depends on who the caller is. To limit by several rules, give
// one limiter several rules instead of chaining interceptors: a chain charges the outer limiter for what the inner one
// denies.
//
// # What a denied caller sees
//
// The status is RESOURCE_EXHAUSTED, with the details google.rpc.RetryInfo (the exact time) and google.rpc.QuotaFailure
// (each rule that denied, by name; never the key). The trailer grpc-retry-pushback-ms carries the same time in
// milliseconds, rounded up, which clients with a retry policy obey (gRFC A6). It is negative, which tells them not to
// retry, if the cost can never fit the limit, when RetryInfo is absent too, or if the time is beyond the 24 days that
// the trailer can say. If the store cannot answer and the rule is [sluice.FailClosed], the status is UNAVAILABLE.
//
// # What an allowed caller sees
//
// The header metadata x-ratelimit-limit, x-ratelimit-remaining and x-ratelimit-reset tell of the rule with the smallest
// share remaining: the most that can be spent at once, what can be spent now, and in how many seconds, rounded up, the
// key is as if never used. While the store cannot answer, x-ratelimit-degraded says who did: "local", "open" or
// "closed". Callers are told nothing of rules in shadow mode, which never deny. [WithoutQuotaMetadata] turns all four off.
//
// gRPC clients retry only replies without header metadata. So none is set before it is known that the call goes well:
// with an error, from the handler or from here, the same metadata is in the trailer, where x-ratelimit-reset of a denial
// is the time to retry after. A cost that can never fit the limit has none. An interceptor in front that sets header metadata undoes this, and clients then ignore
// grpc-retry-pushback-ms.
//
// # Before the call costs anything
//
// [TapHandle] denies a call when its headers have been read and nothing else: no goroutine, no message. It can do less
// than the interceptors; its comment says what.
package grpclimit
