package gateway

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
)

// Delivered is the outcome of a delivery.
type Delivered struct {
	queue.Outcome
	Limited bool          // a limit denied it
	After   time.Duration // time until the next attempt
}

// Deliver delivers a queued request without a queue.
func (g *Gateway) Deliver(ctx context.Context, it *queue.Item, begin func() error) Delivered {
	out := g.deliver(ctx, it, begin)
	return Delivered{out.Outcome, out.later > 0, out.later}
}
