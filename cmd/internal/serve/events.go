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
		joined.OnDecision = both(joined.OnDecision, e.OnDecision)
		joined.OnDenial = both(joined.OnDenial, e.OnDenial)
		if first, then := joined.OnForgiven, e.OnForgiven; first != nil && then != nil {
			joined.OnForgiven = func(ctx context.Context, t sluice.Take, n int64) { first(ctx, t, n); then(ctx, t, n) }
		} else if then != nil {
			joined.OnForgiven = then
		}
		if first, then := joined.OnStoreError, e.OnStoreError; first != nil && then != nil {
			joined.OnStoreError = func(ctx context.Context, err error) { first(ctx, err); then(ctx, err) }
		} else if then != nil {
			joined.OnStoreError = then
		}
		if first, then := joined.OnShardUnavailable, e.OnShardUnavailable; first != nil && then != nil {
			joined.OnShardUnavailable = func(ctx context.Context, n int, err error) { first(ctx, n, err); then(ctx, n, err) }
		} else if then != nil {
			joined.OnShardUnavailable = then
		}
		if first, then := joined.OnShardRecovered, e.OnShardRecovered; first != nil && then != nil {
			joined.OnShardRecovered = func(ctx context.Context, n int) { first(ctx, n); then(ctx, n) }
		} else if then != nil {
			joined.OnShardRecovered = then
		}
	}
	return joined
}

type decisionEvent = func(context.Context, sluice.Take, sluice.Decision)

func both(first, then decisionEvent) decisionEvent {
	switch {
	case first == nil:
		return then
	case then == nil:
		return first
	}
	return func(ctx context.Context, t sluice.Take, d sluice.Decision) { first(ctx, t, d); then(ctx, t, d) }
}
