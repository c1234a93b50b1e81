package grpclimit

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/sluiceproject/sluice"
)

// Option configures an interceptor or a tap handle. If an option is given twice, the later one applies.
type Option func(*options)

type options struct {
	cost       func(ctx context.Context, fullMethod string, req any) int64
	skip       func(fullMethod string) bool
	chargeIf   func(code codes.Code) bool
	limitFor   func(ctx context.Context, fullMethod, key string) *sluice.Limit
	perMessage bool
	noQuota    bool
}

// Cost sets the function that returns the cost of a call; the default cost is 1. Calls of cost 0 are neither limited nor
// charged. A negative cost ends the call with INTERNAL.
//
// The request is nil if it has not been read: for the call of a stream, and in a tap handle. With [PerMessage] the function
// is also called with each message.
func Cost(f func(ctx context.Context, fullMethod string, req any) int64) Option {
	return func(o *options) { o.cost = f }
}

// Skip sets the function that reports whether calls of a method bypass the limiter. By default all methods are limited,
// including health checks and reflection.
func Skip(f func(fullMethod string) bool) Option { return func(o *options) { o.skip = f } }

// ChargeIf charges only calls with certain status codes. A call is charged when it arrives and refunded when the handler is
// done if f returns false for its code, so that calls in flight never exceed the limit. Only the unexpired part of the charge
// is refunded. Charging only Unauthenticated, for example, limits password guesses.
//
// For a stream only the call is refunded, not the messages charged by [PerMessage]. A call whose handler panics is not
// refunded. [TapHandle] panics if it is given this option, because it does not see how a call ends.
func ChargeIf(f func(code codes.Code) bool) Option { return func(o *options) { o.chargeIf = f } }

// LimitFor sets the function that returns the limit of a call, for example by plan or method, or nil for the limit of the
// rule. The limits must come from [sluice.Limit.Build]. It requires a limiter with exactly one rule and replaces
// [sluice.WithLimitFor].
func LimitFor(f func(ctx context.Context, fullMethod, key string) *sluice.Limit) Option {
	return func(o *options) { o.limitFor = f }
}

// PerMessage charges each message that a stream receives in addition to the call: a stream of n messages costs 1+n. To
// charge only messages, let [Cost] return 0 if the request is nil. Messages have the key of the call. A message is charged
// when it has arrived, before the handler receives it.
//
// A denied message ends the stream: RecvMsg and all later calls of SendMsg return the denial, and the client gets its status
// whatever the handler returns. A [sluice.LeakyQueue] makes RecvMsg block instead, which slows down the client.
//
// It has no effect on unary calls. [TapHandle] panics if it is given this option, because it sees no messages.
func PerMessage() Option { return func(o *options) { o.perMessage = true } }

// WithoutQuotaMetadata disables the x-ratelimit-* metadata. Denials still contain the time to retry.
func WithoutQuotaMetadata() Option { return func(o *options) { o.noQuota = true } }
