package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluiceproject/sluice/rules"
)

// Overload is what is turned away because not all can be served.
type Overload struct {
	AdaptiveLimits []AdaptiveLimit
	Pressure       float64 // of the process, 0 to 1
}

// AdaptiveLimit is a gate of the live rules. What it turned away is counted from the lowest priority on, because of what is behind it
// and because of the process.
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
		gauge(out, gateLimitDesc, float64(g.Limit), g.Name)
		gauge(out, gateFlightDesc, float64(g.InFlight), g.Name)
		for n := range g.ShedByUpstream {
			priority := (rules.PriorityLow + rules.Priority(n)).String()
			counter(out, shedDesc, g.ShedByUpstream[n], g.Name, priority, "upstream")
			counter(out, shedDesc, g.ShedByProcess[n], g.Name, priority, "process")
		}
	}
}
