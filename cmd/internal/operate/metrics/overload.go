package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluiceproject/sluice/rules"
)

// Overload is the state of load shedding.
type Overload struct {
	AdaptiveLimits []AdaptiveLimit
	Pressure       float64 // CPU pressure of the process, 0 to 1
}

// AdaptiveLimit is the state of an adaptive limit of the rule set. ShedByUpstream and ShedByProcess count shed requests by
// priority, the lowest first: those shed by the adaptive limit, and those shed because of CPU pressure.
type AdaptiveLimit struct {
	Name            string
	Limit, InFlight int
	ShedByUpstream  [4]int64
	ShedByProcess   [4]int64
}

func (m *Metrics) collectOverload(out chan<- prometheus.Metric) {
	if m.cfg.Overload == nil {
		return
	}
	o := m.cfg.Overload()
	gauge(out, pressureDesc, o.Pressure)
	for i := range o.AdaptiveLimits {
		g := &o.AdaptiveLimits[i]
		gauge(out, adaptiveLimitDesc, float64(g.Limit), g.Name)
		gauge(out, adaptiveInFlightDesc, float64(g.InFlight), g.Name)
		for n := range g.ShedByUpstream {
			priority := (rules.PriorityLow + rules.Priority(n)).String()
			counter(out, shedDesc, g.ShedByUpstream[n], g.Name, priority, "upstream")
			counter(out, shedDesc, g.ShedByProcess[n], g.Name, priority, "process")
		}
	}
}
