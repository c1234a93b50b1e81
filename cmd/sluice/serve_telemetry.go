package main

import (
	"context"
	"fmt"

	"github.com/sluiceproject/sluice/internal/config"
	"github.com/sluiceproject/sluice/internal/telemetry"
)

// openTelemetry prepares what is told to collectors. Without one there is nothing.
func (s *service) openTelemetry() error {
	c := &s.cfg.Tracing
	if c.Endpoint == "" {
		return nil
	}
	telemetry.LogErrors(s.log)
	to, err := collector(&c.Collector)
	if err == nil {
		s.traces, err = telemetry.NewTraces(to, c.Sample)
	}
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	return nil
}

// closeTelemetry sends what was not sent yet.
func (s *service) closeTelemetry(ctx context.Context) {
	if err := s.traces.Close(ctx); err != nil {
		s.log.Warn("the collector did not take all traces before the end", "error", err)
	}
}

func collector(c *config.Collector) (telemetry.Collector, error) {
	secure, err := storeTLS(&c.TLS)
	return telemetry.Collector{Endpoint: c.Endpoint, TLS: secure, HeadersFile: c.HeadersFile, Version: version()}, err
}
