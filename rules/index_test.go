package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice"
)

// drawn is a random request with few distinct values, so that rules often match it.
type drawn struct {
	values map[string]string
	addr   netip.Addr
}

func (d *drawn) Addr() netip.Addr { return d.addr }

func (d *drawn) Attribute(f *Field) (string, Presence) {
	v, ok := d.values[fmt.Sprint(f.Kind, f.Name)]
	if !ok {
		return "", Absent
	}
	return v, Present
}

var (
	drawnPaths    = []string{"/", "/a", "/a/b", "/a/b/c", "/b", "/b/x1", "/x/b/y", "/a/x"}
	drawnPatterns = []string{"/", "/a", "/a/*", "/a/{id}/c", "/**", "/a/**", "/b/x*", "/*/b/*", "/{id}", "/a/b", "/x/b/y", "/*"}
	drawnHosts    = []string{"a.example.com", "b.a.example.com", "example.com", "other"}
	drawnAddrs    = []string{"10.0.0.1", "10.1.0.1", "192.0.2.1", "2001:db8::1", "2001:db9::1"}
	drawnPrefixes = []string{"10.0.0.0/8", "10.0.0.0/16", "10.0.0.1", "2001:db8::/32", "2001:db8::1", "0.0.0.0/0", "::/0"}
	drawnValues   = []string{"v0", "v1", "v2", ""}
)

func some(t *rapid.T, from []string, label string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, 3, rapid.ID).Draw(t, label)
}

func drawPredicate(t *rapid.T, ref string) Predicate {
	p := Predicate{Ref: Ref{Name: ref}, Not: rapid.IntRange(0, 3).Draw(t, "not") == 0}
	switch ref {
	case "path":
		p.Patterns = some(t, drawnPatterns, "patterns")
		if rapid.IntRange(0, 4).Draw(t, "prefix too") == 0 {
			p.Prefixes = []string{"/x"}
		}
	case "host":
		p.Values = some(t, append([]string{"*.example.com", "*.a.example.com"}, drawnHosts...), "hosts")
	case "ip":
		p.Values = some(t, drawnPrefixes, "prefixes")
	case "method":
		p.Values = some(t, []string{"GET", "POST", "PUT"}, "methods")
	default:
		if rapid.IntRange(0, 4).Draw(t, "present") == 0 {
			yes := rapid.Bool().Draw(t, "is present")
			p.Present, p.Not = &yes, false
			return p
		}
		p.Values = some(t, drawnValues, "values")
	}
	return p
}

func drawMatch(t *rapid.T, least int) Match {
	refs := []string{"method", "path", "host", "ip", "header:A", "header:B", "plan"}
	var m Match
	for _, ref := range rapid.SliceOfNDistinct(rapid.SampledFrom(refs), least, 4, rapid.ID).Draw(t, "refs") {
		m.Predicates = append(m.Predicates, drawPredicate(t, ref))
	}
	return m
}

func drawConfig(t *rapid.T) Config {
	preset := "v1"
	cfg := Config{
		Attributes: []Attribute{{Name: "plan", Sources: []Ref{{Name: "header:P"}, {Name: "query:p"}}, Default: &preset}},
		Unmatched:  Unmatched(rapid.IntRange(0, 1).Draw(t, "unmatched")),
	}
	for range rapid.IntRange(0, 2).Draw(t, "denies") {
		cfg.DenyList = append(cfg.DenyList, drawMatch(t, 2))
	}
	for range rapid.IntRange(0, 2).Draw(t, "allows") {
		cfg.AllowList = append(cfg.AllowList, drawMatch(t, 2))
	}
	for i := range rapid.IntRange(0, 20).Draw(t, "rules") {
		r := Rule{Name: fmt.Sprint("r", i), Match: drawMatch(t, 0), Limits: []Limit{{Limit: sluice.PerSecond(1)}}}
		if rapid.IntRange(0, 3).Draw(t, "except") == 0 {
			r.Except = []Match{drawMatch(t, 1)}
		}
		cfg.Rules = append(cfg.Rules, r)
	}
	return cfg
}

func drawRequest(t *rapid.T) *drawn {
	d := &drawn{values: map[string]string{
		fmt.Sprint(FieldMethod): rapid.SampledFrom([]string{"GET", "POST", "put"}).Draw(t, "method"),
		fmt.Sprint(FieldPath):   rapid.SampledFrom(drawnPaths).Draw(t, "path"),
		fmt.Sprint(FieldHost):   rapid.SampledFrom(drawnHosts).Draw(t, "host"),
	}}
	for _, name := range []string{fmt.Sprint(FieldHeader, "A"), fmt.Sprint(FieldHeader, "B"), fmt.Sprint(FieldHeader, "P"), fmt.Sprint(FieldQuery, "p")} {
		if rapid.Bool().Draw(t, "has "+name) {
			d.values[name] = rapid.SampledFrom(drawnValues).Draw(t, name)
		}
	}
	if rapid.IntRange(0, 5).Draw(t, "has addr") > 0 {
		d.addr = netip.MustParseAddr(rapid.SampledFrom(drawnAddrs).Draw(t, "addr"))
	}
	return d
}

// The index finds the same rules as examining each of them.
func TestIndexAgainstLookingAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := New(drawConfig(t))
		if err != nil {
			t.Fatal(err)
		}
		var m MatchResult
		for range 5 {
			r := drawRequest(t)
			if err := s.Match(r, &m); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, take := range m.Takes {
				got = append(got, take.Rule.Name)
			}
			verdict, want := slowMatch(t, s, r)
			if m.Outcome != verdict || !slices.Equal(got, want) {
				t.Fatalf("%v %v: verdict %v rules %v, want %v %v", r.values, r.addr, m.Outcome, got, verdict, want)
			}
		}
	})
}

// slowMatch is Match without the index, written from the description.
func slowMatch(t *rapid.T, s *Set, r Request) (MatchOutcome, []string) {
	var names []string
	var m MatchResult
	m.begin(s, r)
	for i := range s.items {
		it := &s.items[i]
		ok := true
		for j := range it.predicates {
			holds, err := it.predicates[j].holds(&m)
			if err != nil {
				t.Fatal(err)
			}
			ok = ok && holds
		}
		excepted, err := it.excepted(&m)
		ok = ok && !excepted
		switch {
		case err != nil:
			t.Fatal(err)
		case ok && it.kind == denies:
			return MatchRejected, nil
		case ok && it.kind == allows:
			return MatchExempt, nil
		case ok:
			names = append(names, it.rule.Name)
		}
	}
	switch {
	case len(names) > 0:
		return MatchLimited, names
	case s.cfg.Unmatched == UnmatchedDeny:
		return MatchRejected, nil
	}
	return MatchUnlimited, nil
}

// Warnings that a rule is never reached or never denies are true: it decides no request that matches it.
func TestWarningsAreTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := New(drawConfig(t))
		if err != nil {
			t.Fatal(err)
		}
		unreached := make(map[string]bool)
		for _, w := range s.Warnings() {
			if strings.Contains(w.Msg, "is never reached") {
				unreached[w.Rule] = true
			}
		}
		var m MatchResult
		for range 20 {
			r := drawRequest(t)
			if err := s.Match(r, &m); err != nil {
				t.Fatal(err)
			}
			for _, take := range m.Takes {
				if unreached[take.Rule.Name] {
					t.Fatalf("%s is said to be never reached, but %v %v reaches it", take.Rule.Name, r.values, r.addr)
				}
			}
		}
	})
}
