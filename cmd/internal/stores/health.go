package stores

import (
	"context"
	"log/slog"
	"time"
)

const (
	// checkInterval is the time between two health checks, and the timeout of each.
	checkInterval = time.Second
	// checkFailures is the number of consecutive failures that make a store unhealthy. One lost packet does not.
	checkFailures = 2
)

// WatchHealth calls ping every second until ctx is done. It reports the result of the first call, and then every
// change: an error when the store has become unhealthy, nil when it is healthy again. A store that fails without
// traffic is reported within 3 s, its recovery within 1 s plus one round trip. Changes are logged.
func WatchHealth(ctx context.Context, ping func(context.Context) error, log *slog.Logger, report func(error)) {
	ticks := time.NewTicker(checkInterval)
	defer ticks.Stop()
	failures, known, healthy := 0, false, false
	for {
		bounded, cancel := context.WithTimeout(ctx, checkInterval)
		err := ping(bounded)
		cancel()
		if ctx.Err() != nil {
			return
		}
		failures++
		if err == nil {
			failures = 0
		}
		if !known || err == nil && !healthy || healthy && failures >= checkFailures {
			switch {
			case err != nil:
				log.Error("store health check failed", "error", err)
			case known:
				log.Warn("store health check succeeded")
			}
			known, healthy = true, err == nil
			report(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}
