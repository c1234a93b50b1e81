package serve

import (
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/rules"
)

// newShedder makes what turns requests of the gateway away when not all can be served. The rules say whether anything is:
// without a section shed it costs a look at them. It is nil without a gateway.
func newShedder(cfg *config.Config, set func() *rules.Set) *admission.Shedder {
	if cfg.Gateway.Address == config.Off {
		return nil
	}
	return admission.NewShedder(set)
}

// overloadOf tells metrics what is turned away; nil if there is nothing that could be.
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
