package redisstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

// TestResetRulesConcurrently checks that concurrent resets of one rule together report the number of buckets that
// existed, and that a page token of other rules is rejected.
func TestResetRulesConcurrently(t *testing.T) {
	const keys = 5000
	store := sluice.Must(redisstore.Open(redisstore.Config{URL: redistest.Start(t).URL()}))
	defer store.Close()
	rules := []*sluice.Rule{
		sluice.Must(sluice.NewRule(sluice.Rule{Name: "a", Limit: sluice.PerDay(10)})),
		sluice.Must(sluice.NewRule(sluice.Rule{Name: "b", Limit: sluice.PerDay(10)})),
	}
	takes := make([]sluice.Take, 0, keys)
	for i := range keys {
		takes = append(takes, sluice.Take{Rule: rules[0], Key: fmt.Sprint(i), Cost: 1})
	}
	for part := range 50 {
		if err := store.Apply(t.Context(), takes[part*100:part*100+100], make([]sluice.Decision, 100)); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	var removed atomic.Int64
	for range 3 {
		all.Go(func() {
			o := sluice.ResetOptions{Rules: rules[:1]}
			for {
				page, err := store.ResetRules(t.Context(), o)
				if err != nil {
					t.Error(err)
					return
				}
				removed.Add(page.Removed)
				if o.PageToken = page.NextPageToken; o.PageToken == "" {
					return
				}
			}
		})
	}
	all.Wait()
	if removed.Load() != keys {
		t.Errorf("three resets removed %d buckets, want %d", removed.Load(), keys)
	}
}
