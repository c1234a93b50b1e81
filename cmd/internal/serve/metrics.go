package serve

import (
	"net/http"
	"time"

	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/cmd/internal/operate/insight"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/cmd/internal/stores"
	"github.com/sluiceproject/sluice/internal/admission"
)

// metricsOf are the sources of metrics.
type metricsOf struct {
	cfg      *config.Config
	version  string
	loaded   *ruleSource
	store    stores.Opened
	queue    *queue.Queue       // nil: no queue
	shed     *admission.Shedder // nil: no gateway
	verdicts *insight.Recorder
	lostLogs func() int64
}

// newMetrics returns the metrics of a service. They are counted even if Prometheus metrics are disabled, because the admin API
// uses them.
func newMetrics(of metricsOf) *metrics.Metrics {
	cfg := metrics.Config{
		Version: of.version, Rules: of.loaded.set, Keyed: keyedRules(of.cfg), Queue: queueMetrics(of.queue), Overload: overloadOf(of.shed),
		LostLogLines: of.lostLogs, Verdicts: of.verdicts.Kinds, Servers: of.store.Servers, Ping: of.store.Ping,
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

// metricsPath is the path of metrics on the admin listener and, with metrics.http_listener, on the HTTP listener.
const metricsPath = "/metrics"

// metricsHandler returns the handler for Prometheus, or nil if metrics are disabled.
func metricsHandler(of *snapshot) http.Handler {
	if !of.cfg.Metrics.Enabled {
		return nil
	}
	return of.metrics.Handler()
}

// countRLS returns an observer that counts RLS requests.
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
