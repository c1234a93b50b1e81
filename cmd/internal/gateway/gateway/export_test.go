package gateway

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
)

// Delivered is what came of a delivery.
type Delivered struct {
	queue.Outcome
	Limited bool          // there was no room
	After   time.Duration // when there may be some
}

// Deliver sends a request that was queued, without a queue.
func (g *Gateway) Deliver(ctx context.Context, it *queue.Item, begin func() error) Delivered {
	out := g.deliver(ctx, it, begin)
	return Delivered{out.Outcome, out.later > 0, out.later}
}
