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

// Traces traces requests. Nil traces nothing.
type Traces struct {
	conn     *grpc.ClientConn
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	parents  propagation.TraceContext
}

// What waits to be sent. More is dropped.
const (
	queueSpans = 4096
	batchSpans = 512
)

// NewTraces returns traces that are sent to a collector, which need not be there yet. Of requests that are not part of a
// trace the fraction sample is traced.
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

// Close sends what was not sent yet, for at most a few seconds.
func (t *Traces) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return flush(ctx, t.provider, t.conn)
}

// flush ends a provider, which sends what it has not sent yet, for at most a few seconds.
func flush(ctx context.Context, provider interface{ Shutdown(context.Context) error }, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return errors.Join(provider.Shutdown(ctx), conn.Close())
}
