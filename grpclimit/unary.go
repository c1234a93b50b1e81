package grpclimit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// isDenial tells whether another limiter has denied the call, whose own quota is in the trailer already.
func isDenial(err error) bool { return status.Code(err) == codes.ResourceExhausted }
