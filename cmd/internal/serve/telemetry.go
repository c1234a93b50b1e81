package serve

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/cmd/internal/operate/telemetry"
	"github.com/sluiceproject/sluice/cmd/internal/pemfile"
)

// collectors are what is told to collectors. Nil: nothing is.
type collectors struct {
	traces  *telemetry.Traces
	metrics *telemetry.Metrics
}

// openCollectors prepares what is told to collectors. Without one there is nothing.
func openCollectors(cfg *config.Config, version string, counted *metrics.Metrics, log *slog.Logger, dry bool) (to collectors, err error) {
	if t := &cfg.Tracing; t.Endpoint != "" {
		c, err := collector(&t.Collector, version)
		if dry && err == nil {
			err = c.Check()
		} else if err == nil {
			to.traces, err = telemetry.NewTraces(c, t.Sample)
		}
		if err != nil {
			return to, fmt.Errorf("tracing: %w", err)
		}
	}
	if m := &cfg.Metrics.OTLP; m.Endpoint != "" {
		c, err := collector(&m.Collector, version)
		if dry && err == nil {
			err = c.Check()
		} else if err == nil {
			to.metrics, err = telemetry.NewMetrics(c, m.Interval, counted.Gatherer())
		}
		if err != nil {
			return to, fmt.Errorf("metrics.otlp: %w", err)
		}
	}
	if to.traces != nil || to.metrics != nil {
		telemetry.LogErrors(log)
	}
	return to, nil
}

// close sends what was not sent yet.
func (to collectors) close(ctx context.Context, log *slog.Logger) {
	var closing sync.WaitGroup
	for what, end := range map[string]func(context.Context) error{"traces": to.traces.Close, "metrics": to.metrics.Close} {
		closing.Go(func() {
			if err := end(ctx); err != nil {
				log.Warn("the collector did not take all before the end", "of", what, "error", err)
			}
		})
	}
	closing.Wait()
}

func collector(c *config.Collector, version string) (telemetry.Collector, error) {
	secure, err := pemfile.Client(c.TLS.CA, c.TLS.Cert, c.TLS.Key)
	return telemetry.Collector{Endpoint: c.Endpoint, TLS: secure, HeadersFile: c.HeadersFile, Version: version}, err
}
