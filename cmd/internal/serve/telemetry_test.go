package serve

import (
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
)

// Without a collector nothing stands between a request and its handler.
func TestServeWithoutTraces(t *testing.T) {
	cfg := config.Default()
	to, err := openCollectors(&cfg, "", nil, nil, false)
	if err != nil || to.traces != nil || to.metrics != nil {
		t.Errorf("%v, %v, %v", to.traces, to.metrics, err)
	}
	if events := to.traces.Events(); events.OnDecision != nil {
		t.Error("decisions are told to nobody")
	}
}
