package grpclimit

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/sluiceproject/sluice"
)

// Option changes what is charged, to whom it applies and what callers are told. Of two that set the same thing the
// later counts.
type Option func(*options)

type options struct {
	cost       func(ctx context.Context, fullMethod string, req any) int64
	skip       func(fullMethod string) bool
	chargeIf   func(code codes.Code) bool
	limitFor   func(ctx context.Context, fullMethod, key string) *sluice.Limit
	perMessage bool
	noQuota    bool
}

// Cost says what a call costs; without it each costs 1. What costs 0 is neither limited nor charged.
//
// The request is nil where it has not been read: for the call itself in a stream, and in a tap handle. With
// [PerMessage] the function is also asked for each message, with the message.
func Cost(f func(ctx context.Context, fullMethod string, req any) int64) Option {
	return func(o *options) { o.cost = f }
}

// Skip leaves calls of some methods alone: no key is made and nothing is charged. Without it all are limited, health
// checks and reflection too.
func Skip(f func(fullMethod string) bool) Option { return func(o *options) { o.skip = f } }

// ChargeIf charges by how the call ends: f is given the code of the handler's status, and if it returns false what the
// call cost is given back, as far as it has not worn off. Until then it is charged, so calls under way cannot exceed
// the limit together. Charging only failures, say, limits how often a caller may guess a password.
//
// In a stream it is about the call; messages charged by [PerMessage] stay charged. So does a call whose handler
// panics. A tap handle never learns how a call ends: [TapHandle] panics when given this option.
func ChargeIf(f func(code codes.Code) bool) Option { return func(o *options) { o.chargeIf = f } }

// LimitFor chooses the limit by call: a plan, a method's own numbers. The function returns a limit made by
// [sluice.Limit.Build], or nil for the rule's own. It is for limiters with one rule and comes before
// [sluice.WithLimitFor].
func LimitFor(f func(ctx context.Context, fullMethod, key string) *sluice.Limit) Option {
	return func(o *options) { o.limitFor = f }
}

// PerMessage charges each message that a stream receives, besides the call: a stream of n messages costs 1+n, and to
// open one that carries none is not free either. To charge messages alone, let [Cost] return 0 when the request is nil.
// Messages have the call's key. A message is charged when it has arrived and before the handler gets it.
//
// One message too many ends the stream: RecvMsg and from then on SendMsg return the denial, and the client gets its
// status whatever the handler returns. A [sluice.LeakyQueue] makes RecvMsg wait instead, which slows the client down.
//
// Unary calls have one message, which is the call. [TapHandle] sees no messages and panics when given this option.
func PerMessage() Option { return func(o *options) { o.perMessage = true } }

// WithoutQuotaMetadata keeps the x-ratelimit-* metadata from callers. Denials still say when to retry.
func WithoutQuotaMetadata() Option { return func(o *options) { o.noQuota = true } }
