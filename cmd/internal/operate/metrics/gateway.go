package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// GatewayConfig is what a gateway shows.
type GatewayConfig struct {
	Routes       []string // by name
	InFlight     func() int64
	Upstreams    func() []UpstreamServer
	DroppedLines func() int64 // of the access log; nil: there is none
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

// gatewayRoute is what is counted of a route.
type gatewayRoute struct {
	classes [6]prometheus.Counter // by the status' first digit; 0: there was no answer
	took    prometheus.Observer
}

// noRoute is the route of requests that have none.
const noRoute = "none"

var classNames = [6]string{"aborted", "1xx", "2xx", "3xx", "4xx", "5xx"}

// Gateway begins to count. It is called once.
func (m *Metrics) Gateway(cfg GatewayConfig) *Gateway {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_gateway_requests_total",
		Help: "Requests to the gateway, by route and class of the answer's status.",
	}, []string{"route", "code"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:                        "sluice_gateway_upstream_duration_seconds",
		Help:                        "How long upstreams took to begin their answer, with retries.",
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

// Done counts a request. The route's name is empty if it had none, and the time negative if no upstream was asked.
func (g *Gateway) Done(route string, status int, upstream time.Duration) {
	if g == nil {
		return
	}
	r := g.routes[route]
	if r == nil {
		r = g.none
	}
	class := status / 100
	if class > 5 || status == 499 { // whoever asked has left
		class = 0
	}
	r.classes[class].Inc()
	if upstream >= 0 {
		r.took.Observe(upstream.Seconds())
	}
}

var (
	inFlightDesc         = desc("gateway_in_flight", "Requests that the gateway is answering, WebSockets among them.")
	lostLinesDesc        = desc("gateway_access_log_lost_total", "Lines of the access log that could not be written.")
	upstreamUpDesc       = desc("upstream_server_up", "Whether a server of an upstream is used: it is well, and does not rest.", "upstream", "server")
	upstreamFlightDesc   = desc("upstream_in_flight", "Requests that a server of an upstream is answering.", "upstream", "server")
	upstreamRequestsDesc = desc("upstream_requests_total", "Requests sent to a server of an upstream.", "upstream", "server")
	upstreamFailuresDesc = desc("upstream_failures_total", "Requests that a server of an upstream has failed.", "upstream", "server")
	upstreamRetriesDesc  = desc("upstream_retries_total", "Of those, how many were given to another server.", "upstream", "server")
	upstreamEjectsDesc   = desc("upstream_ejections_total", "How often a server of an upstream was given a rest.", "upstream", "server")
)

// Describe tells what Collect tells of.
func (g *Gateway) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		inFlightDesc, lostLinesDesc, upstreamUpDesc, upstreamFlightDesc, upstreamRequestsDesc, upstreamFailuresDesc, upstreamRetriesDesc, upstreamEjectsDesc,
	} {
		out <- d
	}
}

// Collect tells how the gateway and its upstreams are now.
func (g *Gateway) Collect(out chan<- prometheus.Metric) {
	gauge(out, inFlightDesc, float64(g.cfg.InFlight()))
	if g.cfg.DroppedLines != nil {
		counter(out, lostLinesDesc, g.cfg.DroppedLines())
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
