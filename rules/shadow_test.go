package rules_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	. "github.com/sluiceproject/sluice/rules"
)

func perHour(n int64) sluice.Limit { return sluice.PerHour(n) }

// A rule in shadow mode rejects no request; enforced, it rejects each of these. It reports them.
func TestShadowNeverRefuses(t *testing.T) {
	long := strings.Repeat("a", 8<<10+1)
	user := func(r *Rule) { r.Per = []Ref{{Name: "header:X-User"}} }
	when := func(p Predicate) func(*Rule) { return func(r *Rule) { r.Match.Predicates = []Predicate{p} } }
	by := func(values ...string) Predicate { return Predicate{Ref: Ref{Name: "header:X-User"}, Values: values} }
	for name, tt := range map[string]struct {
		rule  func(*Rule)
		value string
		found Presence
		path  string
	}{
		"on_missing: reject":         {rule: func(r *Rule) { user(r); r.OnMissing = MissingReject }},
		"a key twice":                {rule: user, found: Ambiguous},
		"a key that is too long":     {rule: user, value: long, found: Present},
		"several keys, one twice":    {rule: func(r *Rule) { r.Per = []Ref{{Name: "ip"}, {Name: "header:X-User"}} }, found: Ambiguous},
		"a cost that is none":        {rule: func(r *Rule) { r.Cost.From = &Ref{Name: "header:X-User"} }, value: "-1", found: Present},
		"a cost twice":               {rule: func(r *Rule) { r.Cost.From = &Ref{Name: "header:X-User"} }, found: Ambiguous},
		"a condition twice":          {rule: when(by("ada")), found: Ambiguous},
		"a condition too long":       {rule: when(by("ada", "bob")), value: long, found: Present},
		"a condition not twice":      {rule: when(Predicate{Ref: Ref{Name: "header:X-User"}, Values: []string{"ada"}, Not: true}), found: Ambiguous},
		"a regular expression twice": {rule: when(Predicate{Ref: Ref{Name: "header:X-User"}, Regexps: []string{"a"}}), found: Ambiguous},
		"an exception twice": {rule: func(r *Rule) {
			r.Except = []Match{{Predicates: []Predicate{by("ada")}}}
		}, found: Ambiguous},
		"a tier twice": {rule: func(r *Rule) {
			r.Tiers = &Tiers{By: Ref{Name: "header:X-User"}, Limits: map[string][]Limit{"ada": {{Limit: perHour(1)}}}}
		}, found: Ambiguous},
		"denied by name": {rule: func(r *Rule) {
			user(r)
			r.Overrides = []Override{{Key: []string{"ada"}, Limits: []Limit{{DenyAll: true}}}}
		}, value: "ada", found: Present},
		"a path": {rule: when(Predicate{Ref: Ref{Name: "path"}, Patterns: []string{"/admin"}}), path: "/admin::$DATA"},
		"a path to count by": {rule: func(r *Rule) {
			r.Match.Predicates = []Predicate{{Ref: Ref{Name: "path"}, Patterns: []string{"/users/{id}"}}}
			r.Per = []Ref{{Name: "path:id"}}
		}, path: "/users/7%2f"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, shadow := range []bool{false, true} {
				r := Rule{Name: "r", Limits: []Limit{{Limit: perHour(100)}}, Shadow: shadow}
				tt.rule(&r)
				s, err := New(Config{Rules: []Rule{r, {Name: "other", Limits: []Limit{{Limit: perHour(100)}}}}})
				if err != nil {
					t.Fatal(err)
				}
				q := &shadowRequest{value: tt.value, found: tt.found, path: tt.path}
				var m MatchResult
				err = s.Match(q, &m)
				rejected := err != nil || m.Outcome == MatchRejected
				switch {
				case rejected == shadow:
					t.Errorf("shadow is %t: %v, %v", shadow, m.Outcome, err)
				case shadow && (len(m.Shadowed) != 1 || m.Shadowed[0].Rule.Name != "r"):
					t.Errorf("reported are %v", m.Shadowed)
				case shadow && (len(m.Takes) != 1 || m.Takes[0].Rule.Name != "other"):
					t.Errorf("counted are %v", m.Takes)
				case !shadow && len(m.Shadowed) > 0:
					t.Errorf("an enforced rule reports %v", m.Shadowed)
				}
			}
		})
	}
}

// A rule in shadow mode changes nothing for an enforced rule: requests that the latter rejects stay rejected.
func TestShadowBesideEnforced(t *testing.T) {
	on := Match{Predicates: []Predicate{{Ref: Ref{Name: "header:X-User"}, Values: []string{"ada"}}}}
	for _, first := range []bool{false, true} {
		s, err := New(Config{Rules: []Rule{
			{Name: "a", Match: on, Limits: []Limit{{Limit: perHour(1)}}, Shadow: first},
			{Name: "b", Match: on, Limits: []Limit{{Limit: perHour(1)}}, Shadow: !first},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var m MatchResult
		if err := s.Match(&shadowRequest{found: Ambiguous}, &m); err == nil {
			t.Errorf("the first is in shadow mode: %t: the request is allowed", first)
		}
	}
	shed := func(shadow bool) error {
		s, err := New(Config{
			AdaptiveLimits: []AdaptiveLimit{{Name: "g", Match: on, Shadow: shadow}},
			Priorities:     []PriorityRule{{Match: on, Priority: PriorityHigh}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var m MatchResult
		_, err = s.LoadClass(&shadowRequest{found: Ambiguous}, &m)
		return err
	}
	if shed(false) == nil || shed(true) != nil {
		t.Errorf("an adaptive limit: %v; in shadow mode: %v", shed(false), shed(true))
	}
}

type shadowRequest struct {
	value, path string
	found       Presence
}

func (r *shadowRequest) Addr() netip.Addr { return netip.MustParseAddr("192.0.2.1") }

func (r *shadowRequest) Attribute(f *Field) (string, Presence) {
	switch f.Kind {
	case FieldHeader:
		return r.value, r.found
	case FieldPath:
		return r.path, Present
	}
	return "", Absent
}
