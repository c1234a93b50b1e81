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

// newEvents returns the limiter events of the log, metrics and traces.
func newEvents(c *config.Logging, log *slog.Logger, set func() *rules.Set, counted *metrics.Metrics, traces *telemetry.Traces, server func(int) string) (sluice.Events, error) {
	logged, err := logEvents(c, log, set, server)
	return joinEvents(logged, counted.Events(), traces.Events()), err
}

// joinEvents returns events that call all of the given ones, in order.
func joinEvents(all ...sluice.Events) (joined sluice.Events) {
	for _, e := range all {
		joined.OnDecision = both(joined.OnDecision, e.OnDecision)
		joined.OnDenial = both(joined.OnDenial, e.OnDenial)
		joined.OnForgiven = both(joined.OnForgiven, e.OnForgiven)
		joined.OnStoreError = bothRarely(joined.OnStoreError, e.OnStoreError)
		joined.OnShardUnavailable = both(joined.OnShardUnavailable, e.OnShardUnavailable)
		joined.OnShardRecovered = bothRarely(joined.OnShardRecovered, e.OnShardRecovered)
	}
	return joined
}

// both returns a function that calls first and then the other, skipping nil ones. It is nil if both are.
func both[A, B any](first, then func(context.Context, A, B)) func(context.Context, A, B) {
	switch {
	case first == nil:
		return then
	case then == nil:
		return first
	}
	return func(ctx context.Context, a A, b B) { first(ctx, a, b); then(ctx, a, b) }
}

// bothRarely is both for events with one argument. They are rare, so an additional call does not matter.
func bothRarely[A any](first, then func(context.Context, A)) func(context.Context, A) {
	if first == nil {
		return then
	}
	return func(ctx context.Context, a A) {
		first(ctx, a)
		if then != nil {
			then(ctx, a)
		}
	}
}
