package sluice

import (
	"context"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/remote"
)

// Events are callbacks of a [Limiter]. Any may be nil. They run on the caller's goroutine before the call returns, so
// they must be fast.
type Events struct {
	// OnDecision is called for each decision of each rule, except peeks.
	OnDecision func(ctx context.Context, t Take, d Decision)
	// OnDenial is called for each denied or shadow-denied decision.
	OnDenial func(ctx context.Context, t Take, d Decision)
	// OnStoreError is called when the store is unavailable and the rules' fail modes decide.
	OnStoreError func(ctx context.Context, err error)
	// OnForgiven is called when a settlement would exceed the maximum negative balance of a bucket. n is the part of
	// the take's cost that was not charged.
	OnForgiven func(ctx context.Context, t Take, n int64)
	// OnShardUnavailable is called when the circuit breaker of a shard opens, with the last error. OnShardRecovered is
	// called when a probe succeeds and calls resume (half-open); it runs on its own goroutine.
	OnShardUnavailable func(ctx context.Context, shard int, err error)
	OnShardRecovered   func(ctx context.Context, shard int)
}

// WithEvents sets the limiter's callbacks.
func WithEvents(e Events) Option { return func(o *options) { o.events = e } }

// ofEngine returns the events that the engine reports.
func (e *Events) ofEngine() remote.Events {
	of := remote.Events{OnStoreError: e.OnStoreError, OnShardUnavailable: e.OnShardUnavailable, OnShardRecovered: e.OnShardRecovered}
	if forgiven := e.OnForgiven; forgiven != nil {
		of.OnForgiven = func(ctx context.Context, op *group.Op, n int64) { forgiven(ctx, takeOf(op), n) }
	}
	return of
}
