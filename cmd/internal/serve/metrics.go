package serve

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
)

// newMetrics begins to count. What is counted is for operators too, and so it is counted whether or not it is shown to
// Prometheus.
func (s *Service) newMetrics() *metrics.Metrics {
	cfg := metrics.Config{Version: s.options.Version, Rules: s.rules, Keyed: s.keyedRules(), Queue: s.queueMetrics(), Overload: s.overload(), LostLogLines: s.logLines.Lost}
	began := time.Now()
	cfg.Loaded = func() metrics.Loaded { return metrics.Loaded{Digest: "built-in", At: began} }
	if s.watcher != nil {
		cfg.Loaded = func() metrics.Loaded {
			status := s.watcher.Status()
			return metrics.Loaded{Digest: status.Digest, At: status.Loaded, Failed: status.Err != nil}
		}
	}
	if m, ok := s.store.Store.(interface{ Len() int }); ok {
		cfg.Keys = m.Len
	}
	if r, ok := s.store.Store.(sluice.Remote); ok {
		cfg.Servers = r.Servers
		if p, ok := r.(pinger); ok {
			cfg.Ping = p.Ping
			if s.cfg.Store.Kind == config.Redis {
				cfg.Servers, cfg.Ping = redisServers(r, p)
			}
		}
	}
	s.servers, s.answers = cfg.Servers, cfg.Ping
	return metrics.New(cfg)
}

type pinger interface{ Ping(context.Context) error }

// redisServers says that there is one server until Redis has answered: only then it is known whether it is a cluster.
func redisServers(r sluice.Remote, p pinger) (servers func() int, ping func(context.Context) error) {
	var answered atomic.Bool
	servers = func() int {
		if !answered.Load() {
			return 1
		}
		return r.Servers()
	}
	ping = func(ctx context.Context) error {
		err := p.Ping(ctx)
		if err == nil {
			answered.Store(true)
		}
		return err
	}
	return servers, ping
}

// metricsPath is where Prometheus asks, on the listener for operators and, if that is wanted, on that for HTTP.
const metricsPath = "/metrics"

// metricsHandler answers Prometheus, or is nil if metrics are switched off.
func (s *Service) metricsHandler() http.Handler {
	if !s.cfg.Metrics.Enabled {
		return nil
	}
	return s.metrics.Handler()
}

// addMetrics shows metrics on the listener for HTTP if that is wanted.
func (s *Service) addMetrics(mux *http.ServeMux) {
	if s.cfg.Metrics.OnHTTP {
		mux.Handle("GET "+metricsPath, s.metricsHandler())
	}
}

// countRLS counts what Envoy asks.
func (s *Service) countRLS() rls.Observer {
	requests := s.metrics.Requests("rls", rls.CodeOK.String(), rls.CodeOverLimit.String())
	return func(overall rls.Code, err error, began time.Time) {
		code := overall.String()
		if err != nil {
			code = status.Code(err).String()
		}
		requests.Done(code, began)
	}
}
