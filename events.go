package sluice

import (
	"context"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/remote"
)

// Events are called as things happen. Any may be nil. They run on the caller's goroutine before it gets its answer:
// keep them short.
type Events struct {
	// OnDecision is called for each decision of each rule, peeks excluded.
	OnDecision func(ctx context.Context, t Take, d Decision)
	// OnDenial is called for each decision that was not allowed, and for those that only a shadow rule denied.
	OnDenial func(ctx context.Context, t Take, d Decision)
	// OnStoreError is called when the store could not answer and the rules' fail modes did.
	OnStoreError func(ctx context.Context, err error)
	// OnForgiven is called when a settlement would have taken a key further into debt than it can go: n is what of the
	// take's cost was not charged.
	OnForgiven func(ctx context.Context, t Take, n int64)
	// OnShardUnavailable is called when a shard of a RemoteStore has failed so often that it is given a rest, and
	// OnShardRecovered when it answers again. OnShardRecovered runs on a goroutine of its own.
	OnShardUnavailable func(ctx context.Context, shard int, err error)
	OnShardRecovered   func(ctx context.Context, shard int)
}

// WithEvents has the limiter report what it does.
func WithEvents(e Events) Option { return func(o *options) { o.events = e } }

// ofEngine are the events that the engine tells of.
func (e *Events) ofEngine() remote.Events {
	of := remote.Events{OnStoreError: e.OnStoreError, OnShardUnavailable: e.OnShardUnavailable, OnShardRecovered: e.OnShardRecovered}
	if forgiven := e.OnForgiven; forgiven != nil {
		of.OnForgiven = func(ctx context.Context, op *group.Op, n int64) { forgiven(ctx, takeOf(op), n) }
	}
	return of
}
