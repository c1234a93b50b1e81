package metrics_test

import (
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
)

// The verdict on a rule is 1, those that it had before are 0. Without verdicts there is no series.
func TestVerdicts(t *testing.T) {
	m := metrics.New(metrics.Config{Rules: rulesOf(t, several).Load, Verdicts: func() map[string]map[string]bool {
		return map[string]map[string]bool{"a": {"fits": false, "too_strict": true}, "b#2": {"no_verdict": true}}
	}})
	compare(t, ours(scrape(t, m), "sluice_rule_verdict"), map[string]float64{
		`sluice_rule_verdict{rule="a",verdict="fits"}`: 0, `sluice_rule_verdict{rule="a",verdict="too_strict"}`: 1,
		`sluice_rule_verdict{rule="b#2",verdict="no_verdict"}`: 1,
	})
	none := metrics.New(metrics.Config{Rules: rulesOf(t, several).Load})
	if got := ours(scrape(t, none), "sluice_rule_verdict"); len(got) != 0 {
		t.Errorf("without verdicts: %v", got)
	}
}
