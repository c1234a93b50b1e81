package rules

import (
	"fmt"
	"strings"
	"testing"
)

func TestMatchDescriptorsDoesNotAllocate(t *testing.T) {
	rules := forest{
		limited("a", "").with(named("A")),
		limited("b", "").with(named("B", "A")),
		node("s", "files/*", limited("u", "*.pdf", limited("deep", ""))).with(sharing),
		limited("\x00", ""),
	}
	for i := range 1000 {
		rules = append(rules, limited("path", fmt.Sprintf("/tenants/%d/*", i)))
		rules = append(rules, limited("host", fmt.Sprintf("*.t%d.example", i)))
	}
	tree := mustTree(t, rules...)
	ds := []Descriptor{
		{Entries: entries("a", "1"), Cost: 1},
		{Entries: entries("b", strings.Repeat("long ", 100)), Cost: 1},
		{Entries: entries("s", "files/x", "u", "x.pdf", "deep", "1"), Cost: 0},
		{Entries: entries("\x00", "\x00"), Cost: 2},
		{Entries: entries("path", "/tenants/555/x"), Cost: 1},
		{Entries: entries("host", "www.t555.example"), Cost: 1},
		{Entries: entries("none", ""), Cost: 1},
	}
	var m DescriptorMatches
	var stat []byte
	run := func() {
		tree.match(ds, &m)
		for i := range m.Matches {
			if l := m.Matches[i].Limit; l != nil {
				stat = l.AppendStatKey(stat[:0], ds[i].Entries)
			}
		}
	}
	run()
	if len(m.Takes) != 5 {
		t.Fatalf("%d takes, want 5", len(m.Takes))
	}
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMatchDescriptors(b *testing.B) {
	for _, siblings := range []int{10, 10_000} {
		var rules []DescriptorRule
		for i := range siblings {
			rules = append(rules, limited("path", fmt.Sprintf("/tenants/%d/*", i)))
			rules = append(rules, limited("host", fmt.Sprintf("*.t%d.example", i)), limited("user", fmt.Sprint(i)))
		}
		tree := mustTree(b, rules...)
		for _, e := range []Entry{{"user", "7"}, {"path", "/tenants/7/x"}, {"host", "www.t7.example"}, {"other", "x"}} {
			b.Run(fmt.Sprintf("%s-of-%d", e.Key, siblings), func(b *testing.B) {
				ds := []Descriptor{{Entries: []Entry{e}, Cost: 1}}
				var m DescriptorMatches
				for b.Loop() {
					tree.match(ds, &m)
				}
				if (len(m.Takes) == 1) == (e.Key == "other") {
					b.Fatalf("%d takes", len(m.Takes))
				}
			})
		}
	}
}
