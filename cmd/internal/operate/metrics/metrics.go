// Package metrics counts decisions and requests of a service and exports the counts to Prometheus.
//
// Series are labelled by rule and never by key, so that their number does not depend on the traffic. Rules that are not
// in the rule set, such as limits sent with requests, are counted as "other". The keys that are denied or near their limit
// are counted in sketches of fixed size; see [Metrics.Denied].
//
// Counting a decision costs a map lookup by the rule's pointer and one or two atomic additions, and does not allocate.
package metrics

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/topkeys"
	"github.com/sluiceproject/sluice/rules"
)

// Config contains the sources of the metrics. Rules is required.
type Config struct {
	Version string
	Rules   func() *rules.Set // returns the rule set in use; called again when it may have changed
	Keyed   []*sluice.Rule    // further rules, whose limits are sent with requests
	Loaded  func() Loaded     // returns the result of the last reload; nil: the rules never change
	Keys    func() int        // returns the number of buckets in the store; nil: unknown
	Servers func() int        // returns the number of shards of the store; nil: none, as for the memory store
	// Ping checks the store. It is called on each scrape; nil: the store is always available.
	Ping func(context.Context) error
	// Queue returns the state of the durable queue; nil without queue.
	Queue func() Queue
	// Overload returns the state of load shedding; nil without load shedding.
	Overload func() Overload
	// Verdicts returns, for each limit, the kind of its verdict as true and those that there were before as false; nil: rules are
	// not judged.
	Verdicts func() map[string]map[string]bool
	// LostLogLines returns the number of lines dropped from the service log; nil without log.
	LostLogLines func() int64
}

// Loaded is the result of the last reload of the rules.
type Loaded struct {
	Digest string    // identifies the rule set in use
	At     time.Time // when that rule set was loaded
	Failed bool      // the files have changed since and are invalid
}

// Metrics holds the metrics of a service. It is safe for concurrent use.
type Metrics struct {
	Denied *topkeys.Sketch // denied keys, those of shadow rules included
	Near   *topkeys.Sketch // allowed keys with less than 20 % of their limit remaining

	cfg      Config
	registry *prometheus.Registry
	live     atomic.Pointer[ruleTable]
	changing sync.Mutex // held while live is replaced
	other    *counters
	failures atomic.Int64 // failed store calls
	servers  servers
	peaks    peakClock
	keys     keyCount
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// topSize is the size of the sketches: every key with more than 1/topSize of all counts is found.
const topSize = 200

// New returns metrics whose counters are 0.
func New(cfg Config) *Metrics {
	m := &Metrics{
		Denied: topkeys.New(topSize), Near: topkeys.New(topSize),
		cfg: cfg, registry: prometheus.NewRegistry(), other: new(counters),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_requests_total",
			Help: "Requests by protocol and response code.",
		}, []string{"protocol", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_decision_duration_seconds",
			Help: "Time to decide a request, in seconds: reading it, matching rules, calling the store and writing the response, without the network.",
			Buckets: []float64{
				1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1,
			},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"protocol"}),
	}
	m.live.Store(&ruleTable{other: m.other})
	m.refresh()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_build_info", Help: "Always 1; labels with the version of Sluice and of Go.",
		ConstLabels: prometheus.Labels{"version": cfg.Version, "goversion": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(m, m.requests, m.duration, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Events returns the events by which a limiter reports to m.
func (m *Metrics) Events() sluice.Events {
	return sluice.Events{
		OnDecision:         m.decided,
		OnForgiven:         m.forgave,
		OnStoreError:       func(context.Context, error) { m.failures.Add(1) },
		OnShardUnavailable: func(_ context.Context, n int, _ error) { m.servers.set(n, true) },
		OnShardRecovered:   func(_ context.Context, n int) { m.servers.set(n, false) },
	}
}

// maxScrapes is the maximum number of concurrent scrapes. Further ones receive 503.
const maxScrapes = 4

// Handler returns the handler of the metrics endpoint.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, EnableOpenMetrics: true})
}

// Gatherer returns the source of all metrics, for export by other protocols.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// servers records which shards of the store have an open circuit breaker.
type servers struct {
	mu   sync.Mutex
	open map[int]bool
}

func (s *servers) set(n int, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[int]bool)
	}
	s.open[n] = open
}

func (s *servers) isOpen(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[n]
}
