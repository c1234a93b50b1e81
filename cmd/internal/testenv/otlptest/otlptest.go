// Package otlptest is a collector for tests: it receives OTLP over gRPC and stores the data.
package otlptest

import (
	"context"
	"net"
	"sync"
	"testing"

	collectormetricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Collector stores the data that it receives.
type Collector struct {
	Addr string

	collectorpb.UnimplementedTraceServiceServer
	mu      sync.Mutex
	traces  []*tracepb.ResourceSpans
	metrics []*metricspb.ResourceMetrics
	headers metadata.MD
}

// metrics receives metrics for a collector.
type metrics struct {
	collectormetricspb.UnimplementedMetricsServiceServer
	to *Collector
}

// Start runs a collector until the test ends.
func Start(t testing.TB, options ...grpc.ServerOption) *Collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{Addr: l.Addr().String()}
	server := grpc.NewServer(options...)
	collectorpb.RegisterTraceServiceServer(server, c)
	collectormetricspb.RegisterMetricsServiceServer(server, metrics{to: c})
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

// Export receives spans.
func (c *Collector) Export(ctx context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.traces = append(c.traces, req.GetResourceSpans()...)
	c.headers, _ = metadata.FromIncomingContext(ctx)
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// Traces returns all received spans with their resources.
func (c *Collector) Traces() []*tracepb.ResourceSpans {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.traces
}

// Spans returns the spans of [Collector.Traces].
func (c *Collector) Spans() (all []*tracepb.Span) {
	for _, r := range c.Traces() {
		for _, s := range r.GetScopeSpans() {
			all = append(all, s.GetSpans()...)
		}
	}
	return all
}

// Header returns a header of the last export of spans.
func (c *Collector) Header(name string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headers.Get(name)
}

// Export receives metrics.
func (m metrics) Export(_ context.Context, req *collectormetricspb.ExportMetricsServiceRequest) (*collectormetricspb.ExportMetricsServiceResponse, error) {
	m.to.mu.Lock()
	defer m.to.mu.Unlock()
	m.to.metrics = req.GetResourceMetrics() // replaces earlier ones
	return &collectormetricspb.ExportMetricsServiceResponse{}, nil
}

// Metrics returns the metrics of the last export.
func (c *Collector) Metrics() []*metricspb.ResourceMetrics {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.metrics
}

// Sum returns the sum of a counter over all data points with the attribute.
func (c *Collector) Sum(name, attribute, value string) (sum float64) {
	for _, r := range c.Metrics() {
		for _, s := range r.GetScopeMetrics() {
			for _, m := range s.GetMetrics() {
				if m.GetName() != name {
					continue
				}
				for _, p := range m.GetSum().GetDataPoints() {
					for _, a := range p.GetAttributes() {
						if a.GetKey() == attribute && a.GetValue().GetStringValue() == value {
							sum += p.GetAsDouble()
						}
					}
				}
			}
		}
	}
	return sum
}
