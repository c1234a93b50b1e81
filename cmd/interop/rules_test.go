package interop

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestSameRulesShown compares /rlconfig, which shows operators the loaded rules. The reference's order is random.
func TestSameRulesShown(t *testing.T) {
	s := scenario{rules: append([]string{"quota.yaml"}, everything...), random: 3}
	theirs, ours := s.pair(t, s.allRules(t, 9))
	want, got := theirs.shownRules(t), ours.shownRules(t)
	if len(want) < 50 {
		t.Errorf("the reference shows %d rules", len(want))
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("not shown: %s", line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d lines, want %d", len(got), len(want))
	}
}

func (s *server) shownRules(t *testing.T) []string {
	t.Helper()
	var lines []string
	await(t, func() error {
		res, err := http.Get("http://" + s.debug + "/rlconfig")
		if err != nil {
			return err // the reference opens this port last
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		lines = strings.Split(strings.TrimSpace(string(text)), "\n")
		return err
	})
	return lines
}
