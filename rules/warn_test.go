package rules_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	. "github.com/sluiceproject/sluice/rules"
)

func TestWarnings(t *testing.T) {
	at := func(line int) Position { return Position{File: "f.yaml", Line: line, Column: 1} }
	from := Ref{Name: "header:X-Cost"}
	known := ClientIP{Pos: at(1)}
	for _, test := range []struct {
		name string
		cfg  Config
		want string // "" for none
	}{
		{"nothing to say", Config{Rules: []Rule{{Name: "r", Per: per("attr:user"), Limits: limit("1/s")}}}, ""},
		{"allow list covers the rule", Config{
			AllowList: []Match{match(is("path", "/a/**"))},
			Rules:     []Rule{{Name: "r", Match: match(is("path", "/a/b"), is("method", "GET")), Limits: limit("1/s")}},
		}, "is never reached: the allow list matches all of its requests"},
		{"deny list covers the rule", Config{
			DenyList: []Match{match(is("ip", "10.0.0.0/8"))},
			Rules:    []Rule{{Name: "r", Match: match(is("ip", "10.1.0.0/16")), Limits: limit("1/s")}},
		}, "is never reached: the deny list matches all of its requests"},
		{"allow list covers a part only", Config{
			AllowList: []Match{match(is("path", "/a/b"))},
			Rules:     []Rule{{Name: "r", Match: match(is("path", "/a/*")), Limits: limit("1/s")}},
		}, ""},
		{"except covers match", Config{Rules: []Rule{{
			Name: "r", Match: match(is("method", "GET")), Except: []Match{match(is("method", "GET", "HEAD"))}, Limits: limit("1/s"),
		}}}, "except matches all of its requests"},
		{"a stricter rule denies first", Config{Rules: []Rule{
			{Name: "loose", Pos: at(1), Match: match(is("path", "/a")), Per: per("attr:u"), Limits: limit("10/s")},
			{Name: "strict", Pos: at(5), Match: match(is("path", "/**")), Per: per("attr:u"), Limits: limit("5/s")},
		}}, `f.yaml:1:1: rule "loose": can never deny: rule "strict" at f.yaml:5:1`},
		{"a slower rule with a larger burst does not", Config{Rules: []Rule{
			{Name: "a", Pos: at(1), Per: per("attr:u"), Limits: limit("10/s")},
			{Name: "b", Pos: at(2), Per: per("attr:u"), Limits: limit("100/min")},
		}}, ""},
		{"two equal rules: the later is idle", Config{Rules: []Rule{
			{Name: "a", Pos: at(1), Limits: limit("10/s")},
			{Name: "b", Pos: at(2), Limits: limit("10/s")},
		}}, `rule "b": can never deny`},
		{"two equal rules on one line: the later is idle", Config{Rules: []Rule{
			{Name: "a", Pos: at(1), Limits: limit("10/s")},
			{Name: "b", Pos: at(1), Limits: limit("10/s")},
		}}, `rule "b": can never deny`},
		{"a looser rule denies when the store is unavailable", Config{Rules: []Rule{
			{Name: "a", Pos: at(1), Limits: limit("5/s"), OnFailure: sluice.FailOpen},
			{Name: "b", Pos: at(2), Limits: limit("10/s"), OnFailure: sluice.FailClosed},
		}}, ""},
		{"a looser rule is exact", Config{Rules: []Rule{
			{Name: "a", Pos: at(1), Limits: limit("300/min"), Accuracy: sluice.AccuracyEventual},
			{Name: "b", Pos: at(2), Limits: limit("600/min")},
		}}, ""},
		{"cost of requests without a number", Config{Rules: []Rule{{Name: "r", Limits: limit("5/min"), Cost: Cost{From: &from, Default: 6, Max: 5}}}}, "never allows requests without "},
		{"a prefix without slash", Config{Rules: []Rule{{Name: "r", Match: Match{Predicates: []Predicate{{Ref: Ref{Name: "path"}, Prefixes: []string{"/a/", "a/"}}}}, Limits: limit("1/s")}}}, `the prefix "a/" is never matched: a path begins with a slash`},
		{"a suffix with a slash", Config{Rules: []Rule{{Name: "r", Match: Match{Predicates: []Predicate{{Ref: Ref{Name: "path"}, Suffixes: []string{"/a", "a/"}}}}, Limits: limit("1/s")}}}, `the suffix "a/" is never matched: paths are compared without a trailing slash`},
		{"a header's suffix with a space", Config{Rules: []Rule{{Name: "r", Match: Match{Predicates: []Predicate{{Ref: Ref{Name: "header:X-A"}, Suffixes: []string{" b", "b "}}}}, Limits: limit("1/s")}}}, `the suffix "b " is never matched: the value of a header has no spaces around it`},
		{"a header's prefix with a space", Config{Rules: []Rule{{Name: "r", Match: Match{Predicates: []Predicate{{Ref: Ref{Name: "header:X-A"}, Prefixes: []string{" b", "b "}}}}, Limits: limit("1/s")}}}, `the prefix " b" is never matched: the value of a header has no spaces around it`},
		{"by address, no word of proxies", Config{Rules: []Rule{{Name: "r", Per: per("ip"), Limits: limit("1/s")}}}, "behind a proxy"},
		{"by address, proxies known", Config{ClientIP: known, Rules: []Rule{{Name: "r", Per: per("ip"), Limits: limit("1/s")}}}, ""},
		{"cost above the limit", Config{Rules: []Rule{{Name: "r", Limits: limit("5/min"), Cost: Cost{Default: 6}}}}, "never allows a request: each costs 6, more than the maximum of 5"},
		{"cost that may be above", Config{Rules: []Rule{{Name: "r", Limits: limit("5/min"), Cost: Cost{From: &from, Max: 9}}}}, "may cost up to 9"},
		{"a burst makes room for it", Config{Rules: []Rule{{Name: "r", Limits: []Limit{{Limit: sluice.PerMinute(5).WithBurst(10)}}, Cost: Cost{Default: 6}}}}, ""},
		{"rounding", Config{Rules: []Rule{{Name: "r", Limits: []Limit{{Limit: sluice.PerMinute(3).WithAlgorithm(sluice.SlidingWindowCounter)}}}}}, "rounds its estimate"},
		{"a note of the reader", Config{Rules: []Rule{{Name: "r", Limits: []Limit{{Limit: sluice.PerMinute(3), Warning: "20% of 7 is 1.4, taken for 1"}}}}}, "taken for 1"},
		{"eventual", Config{Rules: []Rule{{Name: "r", Limits: limit("5/min"), Accuracy: sluice.AccuracyEventual}}}, ""},
		{"eventual and short", Config{Rules: []Rule{{Name: "r", Limits: limit("1000/s"), Accuracy: sluice.AccuracyEventual}}}, "may be exceeded by 50%, because instances see each other's usage only after 250ms: use lease or exact, or a limit that lasts 5s"},
		{"eventual, sliding and short", Config{Rules: []Rule{{
			Name: "r", Limits: []Limit{{Limit: sluice.Per(1000, 4*time.Second).WithAlgorithm(sluice.SlidingWindowCounter)}}, Accuracy: sluice.AccuracyEventual,
		}}}, "may be exceeded by 12%, because instances see each other's usage only after 250ms: use exact, or"},
		{"eventual with a large burst", Config{Rules: []Rule{{Name: "r", Limits: []Limit{{Limit: sluice.PerSecond(10).WithBurst(50)}}, Accuracy: sluice.AccuracyEventual}}}, ""},
		{"per path", Config{Rules: []Rule{{Name: "r", Per: per("path"), Limits: limit("5/min")}}}, "every path its own bucket"},
		{"unused attribute", Config{Attributes: []Attribute{{Name: "a", Sources: per("header:A")}}}, `"a" is declared and never used`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, w := range mustSet(t, test.cfg).Warnings() {
				got = append(got, w.String())
			}
			switch {
			case test.want == "" && len(got) > 0:
				t.Errorf("warned: %q", got)
			case test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)):
				t.Errorf("warnings %q, want one with %q", got, test.want)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	cfg := design()
	cfg.AllowList = []Match{match(is("path", "/healthz"))}
	cfg.Rules = append(cfg.Rules, Rule{Name: "off", Disabled: true, Limits: limit("1/s")})
	x := mustSet(t, cfg).Explain(req("POST /posts", "claim:sub", "ada"))
	var got []string
	for _, r := range x.Rules {
		line := r.Name
		if r.Matches {
			line += " matches"
		}
		for _, c := range r.Conditions {
			if !c.Matched {
				line += "; fails: " + c.Text + " (" + c.Value + ")"
			}
		}
		for _, k := range r.Key {
			line += "; " + k.Name + "=" + k.Value
		}
		for _, take := range r.Takes {
			line += "; " + take.EffectiveLimit().String()
		}
		for _, n := range r.Notes {
			line += "; " + n
		}
		got = append(got, line)
	}
	want := []string{
		"allow; fails: path is /healthz (/posts)",
		"posts-per-user matches; user=ada; 2/s",
		"signups-per-ip; fails: path is /accounts (/posts)",
		"rewards-per-device; fails: path is /rewards/* (/posts)",
		"whole-system matches; 10000/s burst 20000",
		"off; is not enabled",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if x.Outcome != MatchLimited || len(x.Takes) != 2 {
		t.Errorf("verdict %v, %d takes", x.Outcome, len(x.Takes))
	}
}
