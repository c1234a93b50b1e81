package serve

import (
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
)

// Without a collector requests are handled without tracing middleware.
func TestServeWithoutTraces(t *testing.T) {
	cfg := config.Default()
	to, err := openCollectors(&cfg, "", nil, nil, false)
	if err != nil || to.traces != nil || to.metrics != nil {
		t.Errorf("%v, %v, %v", to.traces, to.metrics, err)
	}
	if events := to.traces.Events(); events.OnDecision != nil {
		t.Error("decisions are traced without a collector")
	}
}
