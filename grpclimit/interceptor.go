package grpclimit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/sluiceproject/sluice"
)

// UnaryServerInterceptor limits unary calls. It panics if there is no limiter with a rule or no key.
//
// A call that a [sluice.LeakyQueue] has given a later place waits for it here. If the call's context ends first, the
// place is given back; if its deadline is sooner than the place, at once. What a [sluice.Concurrency] limits is held until
// the handler returns.
func UnaryServerInterceptor(limiter *sluice.Limiter, key KeyFunc, opts ...Option) grpc.UnaryServerInterceptor {
	g := newEnforcer(limiter, key, opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if g.skips(info.FullMethod) {
			return handler(ctx, req)
		}
		c, refused := g.unary(ctx, req, info.FullMethod)
		if refused != nil {
			_ = grpc.SetTrailer(ctx, refused.trailer) // fails only outside a server; the status says the same
			return nil, refused.status.Err()
		}
		defer c.permit.Release(ctx)
		reply, err := handler(ctx, req)
		g.settle(ctx, &c, err)
		g.sendQuota(ctx, &c, err)
		return reply, err
	}
}

// StreamServerInterceptor limits streaming calls: each is charged when it is opened. With [PerMessage] so is each
// message it receives. What a [sluice.Concurrency] limits is held until the stream ends. It panics if there is no limiter with a rule or no key.
func StreamServerInterceptor(limiter *sluice.Limiter, key KeyFunc, opts ...Option) grpc.StreamServerInterceptor {
	g := newEnforcer(limiter, key, opts)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if g.skips(info.FullMethod) {
			return handler(srv, ss)
		}
		s, c, refused := g.open(ss, info.FullMethod)
		if refused != nil {
			ss.SetTrailer(refused.trailer)
			return refused.status.Err()
		}
		defer c.permit.Release(ss.Context())
		err := handler(srv, s)
		if refused := s.refused.Load(); refused != nil {
			ss.SetTrailer(refused.trailer)
			err = refused.status.Err()
		} else {
			s.finish(err)
		}
		g.settle(ss.Context(), &c, err)
		return err
	}
}

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

func (g *enforcer) unary(ctx context.Context, req any, fullMethod string) (charge, *callError) {
	key, refused := g.keyOf(ctx, fullMethod)
	if refused != nil {
		return charge{}, refused
	}
	return g.admit(ctx, fullMethod, key, req, g.chargeIf != nil)
}

// sendQuota sends the quota with the reply: in the header if all went well and the handler has not sent that itself, else
// in the trailer. An error with header metadata could not be retried by the client.
func (g *enforcer) sendQuota(ctx context.Context, c *charge, err error) {
	md := g.quotaOf(c)
	if md == nil || err == nil && grpc.SetHeader(ctx, md) == nil || isDenial(err) {
		return
	}
	_ = grpc.SetTrailer(ctx, md)
}

// isDenial reports whether another limiter has denied the call, whose own quota is in the trailer already.
func isDenial(err error) bool { return status.Code(err) == codes.ResourceExhausted }
