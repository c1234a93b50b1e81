package serve

import (
	"context"
	"log/slog"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/cmd/internal/operate/telemetry"
	"github.com/sluiceproject/sluice/rules"
)

// newEvents tells all who watch the limiter.
func newEvents(c *config.Logging, log *slog.Logger, set func() *rules.Set, counted *metrics.Metrics, traces *telemetry.Traces) (sluice.Events, error) {
	logged, err := logEvents(c, log, set)
	return joinEvents(logged, counted.Events(), traces.Events()), err
}

// joinEvents are events that call all of several.
func joinEvents(all ...sluice.Events) (joined sluice.Events) {
	for _, e := range all {
		joined.Decided = both(joined.Decided, e.Decided)
		joined.Denied = both(joined.Denied, e.Denied)
		if first, then := joined.Forgiven, e.Forgiven; first != nil && then != nil {
			joined.Forgiven = func(ctx context.Context, t sluice.Take, n int64) { first(ctx, t, n); then(ctx, t, n) }
		} else if then != nil {
			joined.Forgiven = then
		}
		if first, then := joined.StoreFailed, e.StoreFailed; first != nil && then != nil {
			joined.StoreFailed = func(ctx context.Context, err error) { first(ctx, err); then(ctx, err) }
		} else if then != nil {
			joined.StoreFailed = then
		}
		if first, then := joined.ServerAway, e.ServerAway; first != nil && then != nil {
			joined.ServerAway = func(ctx context.Context, n int, err error) { first(ctx, n, err); then(ctx, n, err) }
		} else if then != nil {
			joined.ServerAway = then
		}
		if first, then := joined.ServerBack, e.ServerBack; first != nil && then != nil {
			joined.ServerBack = func(ctx context.Context, n int) { first(ctx, n); then(ctx, n) }
		} else if then != nil {
			joined.ServerBack = then
		}
	}
	return joined
}

type decided = func(context.Context, sluice.Take, sluice.Decision)

func both(first, then decided) decided {
	switch {
	case first == nil:
		return then
	case then == nil:
		return first
	}
	return func(ctx context.Context, t sluice.Take, d sluice.Decision) { first(ctx, t, d); then(ctx, t, d) }
}
