package serve

import (
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
)

// Without a collector nothing stands between a request and its handler.
func TestServeWithoutTraces(t *testing.T) {
	s := &Service{cfg: config.Default()}
	if err := s.openTelemetry(); err != nil || s.traces != nil || s.sent != nil {
		t.Errorf("%v, %v, %v", s.traces, s.sent, err)
	}
	if events := s.traces.Events(); events.Decided != nil {
		t.Error("decisions are told to nobody")
	}
}
