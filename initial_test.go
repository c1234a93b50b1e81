package sluice_test

import (
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
)

// Only the store can tell which keys are new, so neither leases nor estimates support a bucket with an initial level.
func TestInitialNeedsExact(t *testing.T) {
	for _, accuracy := range []sluice.Accuracy{sluice.AccuracyLease, sluice.AccuracyEventual} {
		rule := sluice.Rule{Name: "r", Limit: sluice.PerMinute(10).WithInitial(3), Accuracy: accuracy}
		if _, err := sluice.NewRule(rule); err == nil || !strings.Contains(err.Error(), "use AccuracyExact, or leave Initial out of the limit") {
			t.Errorf("accuracy %d: %v", accuracy, err)
		}
		rule.Limit = sluice.PerMinute(10).WithInitial(10) // full, the default
		if _, err := sluice.NewRule(rule); err != nil {
			t.Errorf("accuracy %d of a bucket that starts full: %v", accuracy, err)
		}
	}
}
