package metrics_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
)

func TestOverload(t *testing.T) {
	o := metrics.Overload{Pressure: 0.25, AdaptiveLimits: []metrics.AdaptiveLimit{
		{Name: "api", Limit: 40, InFlight: 7, ShedByUpstream: [4]int64{4, 3, 2, 1}, ShedByProcess: [4]int64{9, 0, 0, 0}},
	}}
	m := metrics.New(metrics.Config{Rules: rulesOf(t, several).Load, Overload: func() metrics.Overload { return o }})
	got := scrape(t, m)
	maps.DeleteFunc(got, func(name string, _ float64) bool {
		return !strings.HasPrefix(name, "sluice_shed") && !strings.HasPrefix(name, "sluice_adaptive") && !strings.HasPrefix(name, "sluice_process")
	})
	compare(t, got, map[string]float64{
		`sluice_adaptive_limit{limit="api"}`: 40, `sluice_adaptive_limit_in_flight{limit="api"}`: 7, "sluice_process_pressure_ratio": 0.25,
		`sluice_shed_requests_total{limit="api",priority="low",reason="upstream"}`: 4, `sluice_shed_requests_total{limit="api",priority="normal",reason="upstream"}`: 3,
		`sluice_shed_requests_total{limit="api",priority="high",reason="upstream"}`: 2, `sluice_shed_requests_total{limit="api",priority="critical",reason="upstream"}`: 1,
		`sluice_shed_requests_total{limit="api",priority="low",reason="process"}`: 9, `sluice_shed_requests_total{limit="api",priority="normal",reason="process"}`: 0,
		`sluice_shed_requests_total{limit="api",priority="high",reason="process"}`: 0, `sluice_shed_requests_total{limit="api",priority="critical",reason="process"}`: 0,
	})
}
