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

// UnaryServerInterceptor returns an interceptor that limits unary calls. It panics if the limiter is nil or has no rules, if
// the key is nil, or if options contradict each other.
//
// A [sluice.LeakyQueue] delays calls. If the deadline of the call is earlier than the end of the delay, the call fails at
// once with DEADLINE_EXCEEDED; a call that ends while it is delayed is refunded. Under a [sluice.Concurrency] limit a call
// holds a permit until the handler returns.
func UnaryServerInterceptor(limiter *sluice.Limiter, key KeyFunc, opts ...Option) grpc.UnaryServerInterceptor {
	g := newEnforcer(limiter, key, opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if g.skips(info.FullMethod) {
			return handler(ctx, req)
		}
		c, refused := g.unary(ctx, req, info.FullMethod)
		if refused != nil {
			_ = grpc.SetTrailer(ctx, refused.trailer) // fails only outside a server; the status has the same information
			return nil, refused.status.Err()
		}
		defer c.permit.Release(ctx)
		reply, err := handler(ctx, req)
		g.settle(ctx, &c, err)
		g.sendQuota(ctx, &c, err)
		return reply, err
	}
}

// StreamServerInterceptor returns an interceptor that limits streaming calls. A call is charged when the stream is opened
// and, with [PerMessage], for each message that the server receives. Under a [sluice.Concurrency] limit a stream holds a
// permit until it ends. It panics if the limiter is nil or has no rules, if the key is nil, or if options contradict each
// other.
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

// TapHandle returns a tap handle for [google.golang.org/grpc.InTapHandle] that limits all calls as soon as their headers are
// read: for a denied call no goroutine is started and no message is read. It charges allowed calls, so do not use the same
// limiter in an interceptor.
//
// gRPC calls it on the goroutine of the connection, one call at a time. Therefore:
//
//   - It must be fast. Use a limiter with a store in the same process.
//   - It cannot block. A call that a [sluice.LeakyQueue] would delay is denied and not charged; its delay is the time to
//     retry.
//   - Nothing has been verified: the method may not exist, and the caller is not authenticated.
//   - A denial has the status with its details, but no trailer. Without grpc-retry-pushback-ms, clients with a retry policy
//     for the status code use their own backoff.
//   - Allowed calls get no x-ratelimit-* metadata.
//   - Servers that receive calls through ServeHTTP do not call it.
//
// It panics if the limiter is nil or has no rules, if the key is nil, or if it is given [ChargeIf], [PerMessage] or a
// [sluice.Concurrency] limit.
func TapHandle(limiter *sluice.Limiter, key KeyFunc, opts ...Option) tap.ServerInHandle {
	g := newEnforcer(limiter, key, opts)
	g.tap = true
	if g.flight {
		panic("grpclimit: TapHandle does not support a Concurrency limit, because it does not see when a call ends: use an interceptor")
	}
	if g.chargeIf != nil {
		panic("grpclimit: TapHandle does not support ChargeIf, because it does not see how a call ends: use an interceptor")
	}
	if g.perMessage {
		panic("grpclimit: TapHandle does not support PerMessage, because it sees no messages: use StreamServerInterceptor")
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

// sendQuota sends the quota in the header if the call succeeded and the handler has not sent the header, and otherwise in the
// trailer: a client does not retry an error with header metadata.
func (g *enforcer) sendQuota(ctx context.Context, c *charge, err error) {
	md := g.quotaOf(c)
	if md == nil || err == nil && grpc.SetHeader(ctx, md) == nil || isDenial(err) {
		return
	}
	_ = grpc.SetTrailer(ctx, md)
}

// isDenial reports whether another limiter has denied the call, whose quota is already in the trailer.
func isDenial(err error) bool { return status.Code(err) == codes.ResourceExhausted }
