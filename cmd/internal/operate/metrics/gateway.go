package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// GatewayConfig contains the sources of the gateway metrics.
type GatewayConfig struct {
	Routes       []string // names
	InFlight     func() int64
	Upstreams    func() []UpstreamServer
	DroppedLines func() int64 // lines dropped from the access log; nil without access log
}

// UpstreamServer is a server that a gateway forwards to.
type UpstreamServer struct {
	Upstream, Server                       string
	Up                                     bool
	Requests, Failures, Retries, Ejections int64
	InFlight                               int64
}

// Gateway counts the requests of a gateway, by route. A nil *Gateway counts nothing.
type Gateway struct {
	cfg    GatewayConfig
	routes map[string]*gatewayRoute
	none   *gatewayRoute
}

// gatewayRoute holds the metrics of a route.
type gatewayRoute struct {
	classes [6]prometheus.Counter // by the first digit of the status; 0: no response was sent
	took    prometheus.Observer
}

// noRoute is the label of requests that match no route.
const noRoute = "none"

var classNames = [6]string{"aborted", "1xx", "2xx", "3xx", "4xx", "5xx"}

// Gateway registers the gateway metrics. It must be called at most once.
func (m *Metrics) Gateway(cfg GatewayConfig) *Gateway {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_gateway_requests_total",
		Help: "Requests to the gateway, by route and status class.",
	}, []string{"route", "code"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:                        "sluice_gateway_upstream_first_byte_seconds",
		Help:                        "Time from sending a request to the first byte of the upstream response, retries included, in seconds.",
		Buckets:                     []float64{1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}, []string{"route"})
	g := &Gateway{cfg: cfg, routes: make(map[string]*gatewayRoute)}
	add := func(name string) *gatewayRoute {
		r := &gatewayRoute{took: took.WithLabelValues(name)}
		for i, class := range classNames {
			r.classes[i] = requests.WithLabelValues(name, class)
		}
		return r
	}
	for _, name := range cfg.Routes {
		g.routes[name] = add(name)
	}
	g.none = add(noRoute)
	m.registry.MustRegister(requests, took, g)
	return g
}

// Done counts a request. route is empty if no route matched. upstream is the time to the first byte of the upstream
// response, negative if no upstream was called.
func (g *Gateway) Done(route string, status int, upstream time.Duration) {
	if g == nil {
		return
	}
	r := g.routes[route]
	if r == nil {
		r = g.none
	}
	class := status / 100
	if class > 5 || status == 499 { // 499: the client closed the connection
		class = 0
	}
	r.classes[class].Inc()
	if upstream >= 0 {
		r.took.Observe(upstream.Seconds())
	}
}

var (
	inFlightDesc         = desc("gateway_in_flight_requests", "Requests in flight in the gateway, WebSockets included.")
	droppedLinesDesc     = desc("gateway_access_log_dropped_lines_total", "Lines of the access log that were dropped because the output was blocked or failed.")
	upstreamUpDesc       = desc("upstream_server_up", "1 if the upstream server is healthy and not ejected, else 0.", "upstream", "server")
	upstreamFlightDesc   = desc("upstream_in_flight_requests", "Requests in flight to the upstream server.", "upstream", "server")
	upstreamRequestsDesc = desc("upstream_requests_total", "Requests sent to the upstream server.", "upstream", "server")
	upstreamFailuresDesc = desc("upstream_failures_total", "Requests that failed at the upstream server.", "upstream", "server")
	upstreamRetriesDesc  = desc("upstream_retries_total", "Failed requests of the upstream server that were retried on another server.", "upstream", "server")
	upstreamEjectsDesc   = desc("upstream_ejections_total", "Ejections of the upstream server by outlier detection.", "upstream", "server")
)

// Describe implements [prometheus.Collector].
func (g *Gateway) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		inFlightDesc, droppedLinesDesc, upstreamUpDesc, upstreamFlightDesc, upstreamRequestsDesc, upstreamFailuresDesc, upstreamRetriesDesc, upstreamEjectsDesc,
	} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (g *Gateway) Collect(out chan<- prometheus.Metric) {
	gauge(out, inFlightDesc, float64(g.cfg.InFlight()))
	if g.cfg.DroppedLines != nil {
		counter(out, droppedLinesDesc, g.cfg.DroppedLines())
	}
	for _, s := range g.cfg.Upstreams() {
		gauge(out, upstreamUpDesc, boolValue(s.Up), s.Upstream, s.Server)
		gauge(out, upstreamFlightDesc, float64(s.InFlight), s.Upstream, s.Server)
		counter(out, upstreamRequestsDesc, s.Requests, s.Upstream, s.Server)
		counter(out, upstreamFailuresDesc, s.Failures, s.Upstream, s.Server)
		counter(out, upstreamRetriesDesc, s.Retries, s.Upstream, s.Server)
		counter(out, upstreamEjectsDesc, s.Ejections, s.Upstream, s.Server)
	}
}
