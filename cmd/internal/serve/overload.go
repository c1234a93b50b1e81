package serve

import (
	"context"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/internal/admission"
)

// openShed makes what turns requests of the gateway away when not all can be served. The rules say whether anything is:
// without a section shed it costs a look at them.
func (s *Service) openShed() {
	if s.cfg.Gateway.Address != config.Off {
		s.shed = admission.NewShedder(s.rules)
	}
}

// runShed watches the process.
func (s *Service) runShed(ctx context.Context) {
	if s.shed != nil {
		s.shed.Run(ctx)
	}
}

// overload tells metrics what is turned away; nil if there is nothing that could be.
func (s *Service) overload() func() metrics.Overload {
	if s.shed == nil {
		return nil
	}
	return func() metrics.Overload {
		o := metrics.Overload{Pressure: s.shed.Pressure()}
		for _, g := range s.shed.Gates() {
			o.Gates = append(o.Gates, metrics.Gate(g))
		}
		return o
	}
}
