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
		return !strings.HasPrefix(name, "sluice_shed") && !strings.HasPrefix(name, "sluice_gate") && !strings.HasPrefix(name, "sluice_process")
	})
	compare(t, got, map[string]float64{
		`sluice_gate_limit{gate="api"}`: 40, `sluice_gate_in_flight{gate="api"}`: 7, "sluice_process_pressure_ratio": 0.25,
		`sluice_shed_total{gate="api",priority="low",why="upstream"}`: 4, `sluice_shed_total{gate="api",priority="normal",why="upstream"}`: 3,
		`sluice_shed_total{gate="api",priority="high",why="upstream"}`: 2, `sluice_shed_total{gate="api",priority="critical",why="upstream"}`: 1,
		`sluice_shed_total{gate="api",priority="low",why="process"}`: 9, `sluice_shed_total{gate="api",priority="normal",why="process"}`: 0,
		`sluice_shed_total{gate="api",priority="high",why="process"}`: 0, `sluice_shed_total{gate="api",priority="critical",why="process"}`: 0,
	})
}
