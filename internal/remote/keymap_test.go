package remote

import (
	"fmt"
	"sync"
	"testing"

	"github.com/sluiceproject/sluice/internal/group"
)

// Entries are found by rule and key together, their number is bounded, and deleted entries are not found.
func TestKeyMap(t *testing.T) {
	h := newKeyMap[string]()
	rules := []*group.Rule{ruleNamed("a"), ruleNamed("b")}
	add := func(r *group.Rule, key string) *string {
		return h.add(&group.Op{By: r, Key: key}, func(name bucketID, _ string) *string {
			text := name.rule + "/" + name.key
			return &text
		})
	}
	var work sync.WaitGroup
	for range 8 { // all add the same key
		work.Go(func() {
			for i := range maxTrackedKeys {
				r, key := rules[i%2], fmt.Sprint("k", i/2)
				e := add(r, key)
				if e != nil && (*e != r.Name+"/"+key || h.find(r, key) != e) {
					t.Errorf("%s of %s is %q", key, r.Name, *e)
				}
			}
		})
	}
	work.Wait()
	n := 0
	if !h.each(nil, "", func(*string) bool { n++; return true }) || n > maxTrackedKeys || n < maxTrackedKeys*8/10 {
		t.Errorf("%d are held, at most %d may be", n, maxTrackedKeys)
	}
	if h.find(rules[0], "k0") == nil || h.find(rules[1], "k0") == nil {
		t.Fatal("the first are not held")
	}
	h.each(rules[0], "k0", func(*string) bool { return false })
	if h.find(rules[0], "k0") != nil || h.find(rules[1], "k0") == nil {
		t.Error("the entry of one rule must be deleted, and that of the other kept")
	}
	if h.each(nil, "", func(e *string) bool { return false }) || h.find(rules[1], "k0") != nil {
		t.Error("something is left")
	}
}
