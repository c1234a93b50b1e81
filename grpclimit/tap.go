package grpclimit

import (
	"context"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	"github.com/sluiceproject/sluice"
)

// TapHandle limits calls of all kinds as soon as their headers have been read, for [google.golang.org/grpc.InTapHandle]:
// a denied call costs no goroutine and no message is read. A call that passes is charged; do not give its limiter to an
// interceptor as well.
//
// gRPC runs it on the connection's own goroutine, one call at a time, which has consequences:
//
//   - It must not take long. Use a limiter whose store is in this process.
//   - It cannot wait. A call that a [sluice.LeakyQueue] would delay gives its place back and is denied, with the delay
//     as the time to retry after.
//   - Nothing has been checked. The method may not exist, and no interceptor has authenticated anybody.
//   - A denied client gets the status with its details, and no trailer: grpc-retry-pushback-ms cannot be sent, so
//     clients with a retry policy for the status code retry by their own back-off.
//   - An allowed client gets no x-ratelimit-* metadata.
//   - It is not run by servers that take calls through ServeHTTP.
//
// It panics if there is no limiter with a rule or no key, and if given [ChargeIf], [PerMessage] or a
// [sluice.Concurrency] limit.
func TapHandle(limiter *sluice.Limiter, key KeyFunc, opts ...Option) tap.ServerInHandle {
	g := newEnforcer(limiter, key, opts)
	g.tap = true
	if g.flight {
		panic("grpclimit: TapHandle never learns when a call ends: use a Concurrency limit with an interceptor")
	}
	if g.chargeIf != nil {
		panic("grpclimit: TapHandle never learns how a call ends: use ChargeIf with an interceptor")
	}
	if g.perMessage {
		panic("grpclimit: TapHandle sees no messages: use PerMessage with StreamServerInterceptor")
	}
	return func(ctx context.Context, info *tap.Info) (context.Context, error) {
		if g.skips(info.FullMethodName) {
			return ctx, nil
		}
		if _, refused := g.unary(metadata.NewIncomingContext(ctx, info.Header), nil, info.FullMethodName); refused != nil {
			return ctx, refused.status.Err()
		}
		return ctx, nil
	}
}
