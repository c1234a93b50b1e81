package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
)

// Traces traces requests. A nil *Traces traces nothing.
type Traces struct {
	conn     *grpc.ClientConn
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	parents  propagation.TraceContext
}

// Bounds of spans that wait for export. Further spans are dropped.
const (
	queueSpans = 4096
	batchSpans = 512
)

// NewTraces returns traces that are exported to a collector, which need not be available yet. sample is the ratio of
// requests that are traced, from 0 to 1, among those without a parent span.
func NewTraces(c Collector, sample float64) (*Traces, error) {
	ctx := context.Background()
	conn, about, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithGRPCConn(conn), otlptracegrpc.WithTimeout(sendTimeout))
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	t := &Traces{conn: conn, provider: sdk.NewTracerProvider(
		sdk.WithResource(about),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(sample))),
		sdk.WithBatcher(exporter, sdk.WithMaxQueueSize(queueSpans), sdk.WithMaxExportBatchSize(batchSpans), sdk.WithExportTimeout(sendTimeout)),
	)}
	t.tracer = t.provider.Tracer("github.com/sluiceproject/sluice")
	return t, nil
}

// Close exports the remaining spans. It takes at most flushTimeout.
func (t *Traces) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return flush(ctx, t.provider, t.conn)
}

// flush shuts down a provider, which exports its remaining data, and closes the connection. It takes at most flushTimeout.
func flush(ctx context.Context, provider interface{ Shutdown(context.Context) error }, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return errors.Join(provider.Shutdown(ctx), conn.Close())
}
