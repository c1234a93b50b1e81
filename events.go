package sluice

import (
	"context"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/remote"
)

// Events are called as things happen. Any may be nil. They run on the caller's goroutine before it gets its answer:
// keep them short.
type Events struct {
	// Decided is called for each decision of each rule, peeks excluded.
	Decided func(ctx context.Context, t Take, d Decision)
	// Denied is called for each decision that was not allowed, and for those that only a shadow rule denied.
	Denied func(ctx context.Context, t Take, d Decision)
	// StoreFailed is called when the store could not answer and the rules' fail modes did.
	StoreFailed func(ctx context.Context, err error)
	// Forgiven is called when a settlement would have taken a key further into debt than it can go: n is what of the
	// take's cost was not charged.
	Forgiven func(ctx context.Context, t Take, n int64)
	// ServerAway is called when a server of a Remote store has failed so often that it is given a rest, and ServerBack
	// when it answers again. ServerBack runs on a goroutine of its own.
	ServerAway func(ctx context.Context, server int, err error)
	ServerBack func(ctx context.Context, server int)
}

// WithEvents has the limiter report what it does.
func WithEvents(e Events) Option { return func(o *options) { o.events = e } }

// ofEngine are the events that the engine tells of.
func (e *Events) ofEngine() remote.Events {
	of := remote.Events{StoreFailed: e.StoreFailed, ServerAway: e.ServerAway, ServerBack: e.ServerBack}
	if forgiven := e.Forgiven; forgiven != nil {
		of.Forgiven = func(ctx context.Context, op *group.Op, n int64) { forgiven(ctx, takeOf(op), n) }
	}
	return of
}

// ofDecisions reports whether an event of decisions is set.
func (e *Events) ofDecisions() bool { return e.Decided != nil || e.Denied != nil }

func (e *Events) report(ctx context.Context, t Take, d Decision) {
	if e.Decided != nil {
		e.Decided(ctx, t, d)
	}
	if e.Denied != nil && (!d.Allowed || d.Shadow) {
		e.Denied(ctx, t, d)
	}
}
