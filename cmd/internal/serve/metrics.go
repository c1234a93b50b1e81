package serve

import (
	"net/http"
	"time"

	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/cmd/internal/stores"
	"github.com/sluiceproject/sluice/internal/admission"
)

// metricsOf is what is counted.
type metricsOf struct {
	cfg      *config.Config
	version  string
	loaded   *ruleSource
	store    stores.Opened
	queue    *queue.Queue       // nil: there is none
	shed     *admission.Shedder // nil: there is none
	lostLogs func() int64
}

// newMetrics begins to count. What is counted is for operators too, and so it is counted whether or not it is shown to
// Prometheus.
func newMetrics(of metricsOf) *metrics.Metrics {
	cfg := metrics.Config{
		Version: of.version, Rules: of.loaded.set, Keyed: keyedRules(of.cfg), Queue: queueMetrics(of.queue), Overload: overloadOf(of.shed),
		LostLogLines: of.lostLogs, Servers: of.store.Servers, Ping: of.store.Ping,
	}
	began := time.Now()
	cfg.Loaded = func() metrics.Loaded { return metrics.Loaded{Digest: "built-in", At: began} }
	if w := of.loaded.watcher; w != nil {
		cfg.Loaded = func() metrics.Loaded {
			status := w.Status()
			return metrics.Loaded{Digest: status.Digest, At: status.LoadedAt, Failed: status.LastError != nil}
		}
	}
	if m, ok := of.store.Store.(interface{ Len() int }); ok {
		cfg.Keys = m.Len
	}
	return metrics.New(cfg)
}

// metricsPath is where Prometheus asks, on the listener for operators and, if that is wanted, on that for HTTP.
const metricsPath = "/metrics"

// metricsHandler answers Prometheus, or is nil if metrics are switched off.
func metricsHandler(of *snapshot) http.Handler {
	if !of.cfg.Metrics.Enabled {
		return nil
	}
	return of.metrics.Handler()
}

// countRLS counts what Envoy asks.
func countRLS(counted *metrics.Metrics) rls.Observer {
	requests := counted.Requests("rls", rls.CodeOK.String(), rls.CodeOverLimit.String())
	return func(overall rls.Code, err error, began time.Time) {
		code := overall.String()
		if err != nil {
			code = status.Code(err).String()
		}
		requests.Done(code, began)
	}
}
