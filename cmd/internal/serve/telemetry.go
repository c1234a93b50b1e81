package serve

import (
	"context"
	"log/slog"
	"sync"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/cmd/internal/operate/telemetry"
	"github.com/sluiceproject/sluice/cmd/internal/pemfile"
)

// collectors are the exporters of traces and metrics. Nil fields do nothing.
type collectors struct {
	traces  *telemetry.Traces
	metrics *telemetry.Metrics
}

// openCollectors creates the exporters of configured collectors. With dry, it only checks the configuration.
func openCollectors(cfg *config.Config, version string, counted *metrics.Metrics, log *slog.Logger, dry bool) (to collectors, err error) {
	if t := &cfg.Tracing; t.Endpoint != "" {
		c, err := collector(&t.Collector, version)
		if dry && err == nil {
			err = c.Check()
		} else if err == nil {
			to.traces, err = telemetry.NewTraces(c, t.SampleRatio)
		}
		if err != nil {
			return to, inSetting("tracing", "", err)
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
			return to, inSetting("metrics.otlp", "", err)
		}
	}
	if to.traces != nil || to.metrics != nil {
		telemetry.LogErrors(log)
	}
	return to, nil
}

// close exports the remaining traces and metrics.
func (to collectors) close(ctx context.Context, log *slog.Logger) {
	var closing sync.WaitGroup
	for signal, end := range map[string]func(context.Context) error{"traces": to.traces.Close, "metrics": to.metrics.Close} {
		closing.Go(func() {
			if err := end(ctx); err != nil {
				log.Warn("telemetry flush failed", "signal", signal, "error", err)
			}
		})
	}
	closing.Wait()
}

func collector(c *config.Collector, version string) (telemetry.Collector, error) {
	secure, err := pemfile.Client(c.TLS.CAFile, c.TLS.CertFile, c.TLS.KeyFile)
	return telemetry.Collector{Endpoint: c.Endpoint, TLS: secure, HeadersFile: c.HeadersFile, Version: version}, err
}
