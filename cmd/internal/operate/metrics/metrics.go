// Package metrics counts what a service decides and shows it to Prometheus.
//
// Series are labelled by rule and never by key, so that their number does not depend on who comes: a rule that the live
// set does not have, such as a limit that a request brings, is counted as "other". Which keys are denied or near their
// limit is kept in sketches of fixed size instead; see [Metrics.Denied].
//
// A decision costs a look-up by the rule's address and one or two atomic additions, and allocates nothing.
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

// Config is what there is to be shown. Rules is required.
type Config struct {
	Version string
	Rules   func() *rules.Set // that are live; it is asked again when they may have changed
	Keyed   []*sluice.Rule    // others that count; their limits come with what is asked
	Loaded  func() Loaded     // how the rules were last read; nil: they never change
	Keys    func() int        // that the store keeps; nil: it cannot tell
	Servers func() int        // of the store; nil: it has none
	// Ping asks the store whether it is there. It is called when metrics are asked for; nil: it always is.
	Ping func(context.Context) error
	// Queue tells of requests that are kept for later; nil: there are none.
	Queue func() Queue
	// Overload is what is turned away because not all can be served; nil: nothing is.
	Overload func() Overload
	// LostLogLines returns the number of lines of the service's log that were lost; nil: there is no log.
	LostLogLines func() int64
}

// Loaded is how the rules were last read.
type Loaded struct {
	Digest string    // of those that are live
	At     time.Time // when they went live
	Failed bool      // the files have changed since, and could not be used
}

// Metrics counts. It is safe for concurrent use.
type Metrics struct {
	Denied *topkeys.Sketch // keys that are denied, also by rules that only report
	Near   *topkeys.Sketch // keys that are allowed and have less than a fifth of their limit left

	cfg      Config
	registry *prometheus.Registry
	live     atomic.Pointer[ruleTable]
	changing sync.Mutex // held while live is replaced
	other    *counters
	failures atomic.Int64 // of the store
	servers  servers
	peaks    peakClock
	keys     keyCount
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// topSize is how many keys the sketches tell apart for sure: those with more than a 200th of all that is denied.
const topSize = 200

// New begins to count.
func New(cfg Config) *Metrics {
	m := &Metrics{
		Denied: topkeys.New(topSize), Near: topkeys.New(topSize),
		cfg: cfg, registry: prometheus.NewRegistry(), other: new(counters),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_requests_total",
			Help: "Requests answered, by protocol and answer.",
		}, []string{"protocol", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_decision_duration_seconds",
			Help: "How long a request took to decide: reading it, finding its rules, asking the store, writing the answer; not the network.",
			Buckets: []float64{
				1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1,
			},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"protocol"}),
	}
	m.live.Store(&ruleTable{other: m.other})
	m.refresh()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_build_info", Help: "Always 1; its labels say what runs.",
		ConstLabels: prometheus.Labels{"version": cfg.Version, "goversion": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(m, m.requests, m.duration, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Events are what the limiter is to be watched with.
func (m *Metrics) Events() sluice.Events {
	return sluice.Events{
		OnDecision:         m.decided,
		OnForgiven:         m.forgave,
		OnStoreError:       func(context.Context, error) { m.failures.Add(1) },
		OnShardUnavailable: func(_ context.Context, n int, _ error) { m.servers.set(n, true) },
		OnShardRecovered:   func(_ context.Context, n int) { m.servers.set(n, false) },
	}
}

// maxScrapes is how many may ask at once; more are told to come again.
const maxScrapes = 4

// Handler answers Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, EnableOpenMetrics: true})
}

// Gatherer is what Prometheus is answered from, for who sends it elsewhere.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// servers remembers which servers of the store are given a rest.
type servers struct {
	mu   sync.Mutex
	open map[int]bool
}

func (s *servers) set(n int, away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[int]bool)
	}
	s.open[n] = away
}

func (s *servers) isOpen(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[n]
}
