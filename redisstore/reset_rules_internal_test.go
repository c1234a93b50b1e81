package redisstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// TestResetRulesPages checks that all buckets of a rule are removed page by page, with SCAN and never with KEYS, and
// that other keys stay.
func TestResetRulesPages(t *testing.T) {
	server := redistest.Start(t)
	s, err := Open(Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	const keys = 3000
	var all [2]*sluice.Rule
	for i, name := range []string{"reset", "stays"} {
		all[i] = sluice.Must(sluice.NewRule(sluice.Rule{Name: name, Limit: sluice.PerDay(10)}))
		var takes []sluice.Take
		for j := range keys {
			takes = append(takes, sluice.Take{Rule: all[i], Key: fmt.Sprint(j), Cost: 1})
		}
		for len(takes) > 0 {
			n := min(len(takes), 100)
			if err := s.Apply(t.Context(), takes[:n], make([]sluice.Decision, n)); err != nil {
				t.Fatal(err)
			}
			takes = takes[n:]
		}
	}
	if _, err := server.Do("SET", "others", "1"); err != nil {
		t.Fatal(err)
	}
	pages, removed := 0, int64(0)
	for o := (sluice.ResetOptions{Rules: all[:1]}); ; {
		page, err := s.resetRules(t.Context(), o, 0)
		if err != nil {
			t.Fatal(err)
		}
		pages, removed = pages+1, removed+page.Removed
		if o.PageToken = page.NextPageToken; o.PageToken == "" {
			break
		}
	}
	if removed != keys || pages < 3 {
		t.Errorf("removed %d of %d in %d pages", removed, keys, pages)
	}
	for name, want := range map[string]int{"reset": 0, "stays": keys} {
		rule := all[0]
		if name == "stays" {
			rule = all[1]
		}
		page, err := s.ResetRules(t.Context(), sluice.ResetOptions{Rules: []*sluice.Rule{rule}, DryRun: true})
		if err != nil || page.Removed != int64(want) || page.NextPageToken != "" {
			t.Errorf("rule %s: left %+v, error %v", name, page, err)
		}
	}
	if got, err := server.Do("GET", "others"); err != nil || got != "1" {
		t.Errorf("%q %v", got, err)
	}
	if stats, err := server.Do("INFO", "commandstats"); err != nil || strings.Contains(stats, "cmdstat_keys") {
		t.Errorf("KEYS was used, or error %v", err)
	}
}
