package rules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/sluiceproject/sluice/rules"
)

func loadConfig() Config {
	at := func(line int) Position { return Position{File: "f.yaml", Line: line, Column: 1} }
	return Config{
		Priorities: []PriorityRule{
			{Pos: at(1), Match: match(is("path", "/healthz")), Priority: PriorityCritical},
			{Pos: at(2), Match: match(is("attr:plan", "pro")), Priority: PriorityHigh},
			{Pos: at(3), Match: match(is("path", "/api/reports/**")), Priority: PriorityLow},
			{Pos: at(4), Match: match(is("method", "DELETE"), not(is("ip", "10.0.0.0/8"))), Priority: PriorityLow},
		},
		AdaptiveLimits: []AdaptiveLimit{
			{Pos: at(5), Name: "search", Match: match(is("path", "/api/search")), Min: 5, Max: 50},
			{Pos: at(6), Name: "api", Match: match(is("path", "/api/**"))},
			{Pos: at(7), Name: "admin", Match: match(is("host", "admin.example.com")), Max: 40, Shadow: true},
		},
	}
}

func TestLoad(t *testing.T) {
	s := mustSet(t, loadConfig())
	for _, c := range []struct {
		r    *request
		want string
	}{
		{req("GET /"), "normal -"},
		{req("GET /healthz"), "critical -"},
		{req("GET /healthz", "attr:plan", "pro"), "critical -"},
		{req("GET /api/users"), "normal api 10-1000"},
		{req("GET /api/search"), "normal search 5-50"},
		{req("GET /api/search", "attr:plan", "pro"), "high search 5-50"},
		{req("GET /api/reports/2026", "attr:plan", "pro"), "high api 10-1000"},
		{req("GET /api/reports/2026", "attr:plan", "free"), "low api 10-1000"},
		{req("GET /api/search", "host", "admin.example.com"), "normal search 5-50"},
		{req("GET /x", "host", "admin.example.com"), "normal admin 10-40 shadow"},
		{req("DELETE /x", "ip", "192.0.2.1"), "low -"},
		{req("DELETE /x", "ip", "10.0.0.1"), "normal -"},
	} {
		var m MatchResult
		l, err := s.LoadClass(c.r, &m)
		if err != nil {
			t.Errorf("%v: %v", c.r, err)
		}
		got := l.Priority.String() + " -"
		if g := l.AdaptiveLimit; g != nil {
			got = fmt.Sprintf("%v %s %d-%d", l.Priority, g.Name, g.Min, g.Max)
			if g.Shadow {
				got += " shadow"
			}
		}
		if got != c.want {
			t.Errorf("%v: %s, want %s", c.r.values, got, c.want)
		}
		e := s.Explain(c.r)
		if e.LoadClass == nil || e.LoadClass.Priority != l.Priority || e.LoadClass.AdaptiveLimit != l.AdaptiveLimit {
			t.Errorf("%v is explained as %+v", c.r.values, e.LoadClass)
		}
	}
	if at := s.Explain(req("GET /healthz")).LoadClass.Pos; at.Line != 1 {
		t.Errorf("the priority is said to come from %v", at)
	}
	if x := mustSet(t, design()).Explain(req("GET /")); x.LoadClass != nil {
		t.Errorf("a set without priorities explains %+v", x.LoadClass)
	}
}

// A request whose class cannot be determined is rejected, as with Match.
func TestLoadRefuses(t *testing.T) {
	s := mustSet(t, loadConfig())
	var m MatchResult
	if _, err := s.LoadClass(req("GET /api%2fx"), &m); err == nil {
		t.Error("an ambiguous path has a priority")
	}
	if _, err := s.LoadClass(req("GET /", "attr:plan", "twice"), &m); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("two plans: %v", err)
	}
	if x := s.Explain(req("GET /", "attr:plan", "twice")); !errors.Is(x.Err, ErrAmbiguous) {
		t.Errorf("two plans are explained as %+v", x)
	}
}

// One MatchResult serves LoadClass and Match, in any order.
func TestLoadAndMatchInTurn(t *testing.T) {
	cfg := loadConfig()
	cfg.Rules = design().Rules
	cfg.Attributes = design().Attributes
	s := mustSet(t, cfg)
	r := req("POST /posts", "claim:sub", "ada", "attr:plan", "pro")
	var m MatchResult
	for range 3 {
		l, err := s.LoadClass(r, &m)
		if err != nil || l.Priority != PriorityHigh {
			t.Fatal(l, err)
		}
		if err := s.Match(r, &m); err != nil || len(m.Takes) == 0 {
			t.Fatal(m, err)
		}
	}
}

func TestLoadDoesNotAllocate(t *testing.T) {
	s := mustSet(t, loadConfig())
	quick := &quickRequest{request: req("GET /api/reports/x")}
	var m MatchResult
	if n := testing.AllocsPerRun(1000, func() {
		if l, err := s.LoadClass(quick, &m); err != nil || l.Priority != PriorityLow || l.AdaptiveLimit == nil {
			t.Fatal(l, err)
		}
	}); n != 0 {
		t.Errorf("Load allocates %v times", n)
	}
}

func TestLoadFaults(t *testing.T) {
	path := match(is("path", "/a"))
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Priorities: []PriorityRule{{Priority: PriorityLow}}}, "an entry without conditions matches all requests"},
		{Config{Priorities: []PriorityRule{{Priority: 9, Match: path}}}, "there is no priority 9"},
		{Config{Priorities: []PriorityRule{{Match: match(is("path", "a"))}}}, "does not begin with a slash"},
		{Config{AdaptiveLimits: []AdaptiveLimit{{}}}, "has no name"},
		{Config{AdaptiveLimits: []AdaptiveLimit{{Name: "a b"}}}, "printable ASCII"},
		{Config{AdaptiveLimits: []AdaptiveLimit{{Name: "a"}, {Name: "a"}}}, `an entry named "a" is already there`},
		{Config{AdaptiveLimits: []AdaptiveLimit{{Name: "a", Min: 9, Max: 8}}}, "min 9 is more than max 8"},
		{Config{AdaptiveLimits: []AdaptiveLimit{{Name: "a", Min: -1}}}, "is not between 1 and"},
		{Config{AdaptiveLimits: []AdaptiveLimit{{Name: "a", Max: 10_000_000}}}, "is not between 1 and"},
		{Config{AdaptiveLimits: []AdaptiveLimit{{Name: "a", Match: match(is("nothing", "x"))}}}, `no attribute "nothing"`},
		{Config{AdaptiveLimits: make([]AdaptiveLimit, 1001)}, "at most 1000"},
	} {
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	given := []AdaptiveLimit{{Name: "a"}}
	if s := mustSet(t, Config{AdaptiveLimits: given}); given[0].Max != 0 || s.Config().AdaptiveLimits[0].Max != 1000 {
		t.Errorf("defaults were written into the caller's slice: %+v", given)
	}
}

func TestLoadWarnings(t *testing.T) {
	wide, narrow := match(is("path", "/a/**")), match(is("path", "/a/b"))
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{loadConfig(), ""},
		{Config{Priorities: []PriorityRule{{Match: wide}}}, "there is no load_shedding"},
		{Config{AdaptiveLimits: []AdaptiveLimit{{Name: "a"}}, Priorities: []PriorityRule{{Match: wide}, {Match: narrow}}}, "priorities: the entry is never reached"},
		{Config{AdaptiveLimits: []AdaptiveLimit{{Name: "a"}, {Name: "b", Match: narrow}}}, "load_shedding: b is never reached"},
		{Config{AdaptiveLimits: []AdaptiveLimit{{Name: "a", Match: narrow}, {Name: "b", Match: wide}}}, ""},
		{Config{AdaptiveLimits: []AdaptiveLimit{{Name: "a", Min: 7, Max: 7}}}, "min and max are both 7"},
	} {
		var all []string
		for _, w := range mustSet(t, c.cfg).Warnings() {
			all = append(all, w.String())
		}
		got := strings.Join(all, "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
