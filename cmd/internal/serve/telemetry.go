package serve

import (
	"context"
	"fmt"
	"sync"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/telemetry"
)

// openTelemetry prepares what is told to collectors. Without one there is nothing.
func (s *Service) openTelemetry() error {
	if t := &s.cfg.Tracing; t.Endpoint != "" {
		to, err := collector(&t.Collector, s.options.Version)
		if s.dry && err == nil {
			err = to.Check()
		} else if err == nil {
			s.traces, err = telemetry.NewTraces(to, t.Sample)
		}
		if err != nil {
			return fmt.Errorf("tracing: %w", err)
		}
	}
	if m := &s.cfg.Metrics.OTLP; m.Endpoint != "" {
		to, err := collector(&m.Collector, s.options.Version)
		if s.dry && err == nil {
			err = to.Check()
		} else if err == nil {
			s.sent, err = telemetry.NewMetrics(to, m.Interval, s.metrics.Gatherer())
		}
		if err != nil {
			return fmt.Errorf("metrics.otlp: %w", err)
		}
	}
	if s.traces != nil || s.sent != nil {
		telemetry.LogErrors(s.log)
	}
	return nil
}

// closeTelemetry sends what was not sent yet.
func (s *Service) closeTelemetry(ctx context.Context) {
	var closing sync.WaitGroup
	for what, end := range map[string]func(context.Context) error{"traces": s.traces.Close, "metrics": s.sent.Close} {
		closing.Go(func() {
			if err := end(ctx); err != nil {
				s.log.Warn("the collector did not take all before the end", "of", what, "error", err)
			}
		})
	}
	closing.Wait()
}

func collector(c *config.Collector, version string) (telemetry.Collector, error) {
	secure, err := storeTLS(&c.TLS)
	return telemetry.Collector{Endpoint: c.Endpoint, TLS: secure, HeadersFile: c.HeadersFile, Version: version}, err
}
