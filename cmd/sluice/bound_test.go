package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The bound that is printed for a rule that settles is one that its algorithm keeps: a full bucket and the refill right
// after it, two fixed windows side by side and the worst case of a sliding counter are within it.
func TestSettleBounds(t *testing.T) {
	for limit, want := range map[string]string{
		"{rate: 4/10s, burst: 8}":                                           "use in t seconds ≤ 8 + 0.4 × t + ",
		"{rate: 4/10s, burst: 8, refill: interval}":                         "use in t seconds ≤ 12 + 0.4 × t + ",
		"{rate: 10/min, algorithm: fixed_window}":                           "use in a window of 60 s ≤ 10 + ",
		"{rate: 10/min, algorithm: sliding_window_counter}":                 "use in any 60 s ≤ 20 + ",
		"{rate: 10/min, algorithm: sliding_window_counter, sub_windows: 6}": "use in any 60 s ≤ 20 + ",
		"{rate: 10/min, algorithm: sliding_window_log}":                     "use in any 60 s ≤ 10 + ",
	} {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		text := "rules: [{name: r, limit: " + limit + ", cost: 5, settle: {header: X-Cost}}]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := sluiceRun(t, "check", path)
		if code != 0 || !strings.Contains(out, "r (settle): "+want) {
			t.Errorf("%s: exit %d, want %q in\n%s%s", limit, code, want, out, errs)
		}
		if fills := strings.Contains(out, "the whole rate passes"); fills != (limit == "{rate: 4/10s, burst: 8}") {
			t.Errorf("%s: what lets the whole rate pass is for buckets that refill continuously:\n%s", limit, out)
		}
	}
}
