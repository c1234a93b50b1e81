package serve

import (
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/rules"
)

// newShedder returns the load shedder of the gateway, or nil without a gateway. If the rules have no adaptive limits, it costs
// one lookup per request.
func newShedder(cfg *config.Config, set func() *rules.Set) *admission.Shedder {
	if cfg.Gateway.Address == config.Off {
		return nil
	}
	return admission.NewShedder(set)
}

// overloadOf returns the source of load shedding metrics, or nil without a shedder.
func overloadOf(shed *admission.Shedder) func() metrics.Overload {
	if shed == nil {
		return nil
	}
	return func() metrics.Overload {
		o := metrics.Overload{Pressure: shed.Pressure()}
		for _, g := range shed.AdaptiveLimits() {
			o.AdaptiveLimits = append(o.AdaptiveLimits, metrics.AdaptiveLimit(g))
		}
		return o
	}
}
