package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The bound printed for a rule with an actual cost is one that its algorithm guarantees: a full bucket plus the refill right after
// it, two adjacent fixed windows, and the worst case of a sliding window counter are within it.
func TestSettleBounds(t *testing.T) {
	for limit, want := range map[string]string{
		"{rate: 4/10s, burst: 8}":                                           "usage in t seconds ≤ 8 + 0.4 × t + ",
		"{rate: 4/10s, burst: 8, refill: interval}":                         "usage in t seconds ≤ 12 + 0.4 × t + ",
		"{rate: 10/min, algorithm: fixed_window}":                           "usage in a window of 60 s ≤ 10 + ",
		"{rate: 10/min, algorithm: sliding_window_counter}":                 "usage in any 60 s ≤ 20 + ",
		"{rate: 10/min, algorithm: sliding_window_counter, sub_windows: 6}": "usage in any 60 s ≤ 20 + ",
		"{rate: 10/min, algorithm: sliding_window_log}":                     "usage in any 60 s ≤ 10 + ",
	} {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		text := "rules: [{name: r, limit: " + limit + ", cost: 5, actual_cost: {header: X-Cost}}]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := sluiceRun(t, "check", path)
		if code != 0 || !strings.Contains(out, "r (actual cost): "+want) {
			t.Errorf("%s: exit %d, want %q in\n%s%s", limit, code, want, out, errs)
		}
		if fills := strings.Contains(out, "admitted ≈ the full rate"); fills != (limit == "{rate: 4/10s, burst: 8}") {
			t.Errorf("%s: the bound of the full rate is for buckets that refill continuously:\n%s", limit, out)
		}
	}
}
