package telemetry

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
)

// Metrics exports the Prometheus metrics by OTLP. A nil *Metrics exports nothing.
type Metrics struct {
	conn     *grpc.ClientConn
	provider *sdk.MeterProvider
}

// NewMetrics exports metrics to a collector at the interval every. The collector need not be available yet.
func NewMetrics(c Collector, every time.Duration, from prometheus.Gatherer) (*Metrics, error) {
	ctx := context.Background()
	conn, about, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	exporter, err := otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithGRPCConn(conn), otlpmetricgrpc.WithTimeout(sendTimeout))
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	reader := sdk.NewPeriodicReader(exporter, sdk.WithInterval(every), sdk.WithTimeout(sendTimeout),
		sdk.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(from))))
	return &Metrics{conn: conn, provider: sdk.NewMeterProvider(sdk.WithResource(about), sdk.WithReader(reader))}, nil
}

// Close exports the metrics once more. It takes at most flushTimeout.
func (m *Metrics) Close(ctx context.Context) error {
	if m == nil {
		return nil
	}
	return flush(ctx, m.provider, m.conn)
}
