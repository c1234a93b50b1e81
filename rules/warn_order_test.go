package rules_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluiceproject/sluice"
	. "github.com/sluiceproject/sluice/rules"
)

// Of rules that deny the same requests, all but the first are reported, each with the position of the first; of a
// strict and a loose rule, the loose one is reported, wherever it is.
func TestRulesThatNeverDeny(t *testing.T) {
	rule := func(name string, line int, rate string) Rule {
		return Rule{
			Name: name, Pos: Position{File: "f.yaml", Line: line, Column: 3},
			Match: match(is("path", "/a")), Per: per("attr:user"), Limits: limit(rate),
		}
	}
	never := func(line int, name, by string, at int) string {
		return fmt.Sprintf("f.yaml:%d:3: rule %q: can never deny: rule %q at f.yaml:%d:3 has the same keys, applies to the same requests and is at least as strict", line, name, by, at)
	}
	delayed := rule("delayed", 2, "10/s")
	delayed.Shadow = true
	costly := rule("costly", 2, "10/s")
	costly.Cost.Default = 2
	same := rule("same", 2, "10/s")
	same.Description, same.Hidden, same.Match.Pos = "in other words", true, Position{File: "f.yaml", Line: 2}
	spelt := rule("spelt", 2, "600/min")
	spelt.Limits = []Limit{{Limit: sluice.PerMinute(600).WithBurst(10)}}
	for name, test := range map[string]struct {
		rules []Rule
		want  []string
	}{
		"two":                      {[]Rule{rule("a", 1, "10/s"), rule("b", 2, "10/s")}, []string{never(2, "b", "a", 1)}},
		"three":                    {[]Rule{rule("a", 1, "10/s"), rule("b", 2, "10/s"), rule("c", 3, "10/s")}, []string{never(2, "b", "a", 1), never(3, "c", "a", 1)}},
		"except name and text":     {[]Rule{rule("a", 1, "10/s"), same}, []string{never(2, "same", "a", 1)}},
		"in another spelling":      {[]Rule{rule("a", 1, "10/s"), spelt}, []string{never(2, "spelt", "a", 1)}},
		"the looser is later":      {[]Rule{rule("a", 1, "10/s"), rule("b", 2, "20/s")}, []string{never(2, "b", "a", 1)}},
		"the looser is earlier":    {[]Rule{rule("a", 1, "20/s"), rule("b", 2, "10/s")}, []string{never(1, "a", "b", 2)}},
		"two loose, one strict":    {[]Rule{rule("a", 1, "20/s"), rule("b", 2, "20/s"), rule("c", 3, "10/s")}, []string{never(1, "a", "c", 3), never(2, "b", "c", 3)}},
		"one loose, two strict":    {[]Rule{rule("a", 1, "10/s"), rule("b", 2, "20/s"), rule("c", 3, "10/s")}, []string{never(2, "b", "a", 1), never(3, "c", "a", 1)}},
		"in shadow it denies none": {[]Rule{delayed, rule("b", 3, "10/s")}, nil},
		"a request costs more":     {[]Rule{rule("a", 1, "10/s"), costly}, []string{never(1, "a", "costly", 2)}},
	} {
		var got []string
		for _, w := range mustSet(t, Config{Rules: test.rules}).Warnings() {
			got = append(got, w.String())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got\n%q, want\n%q", name, got, test.want)
		}
	}
}

// Warnings are in the order of the files and their lines, every time.
func TestWarningOrder(t *testing.T) {
	var cfg Config
	for _, file := range []string{"b.yaml", "a.yaml"} {
		for line := 1; line <= 30; line++ {
			r := Rule{Name: fmt.Sprintf("%s-%d", file[:1], line), Pos: Position{File: file, Line: 10 * line}, Limits: limit("5/min"), Cost: Cost{Default: 6}}
			r.Per = []Ref{{Pos: Position{File: file, Line: 10*line + 1}, Name: "path"}}
			r.Limits[0].Pos = Position{File: file, Line: 10*line + 2}
			cfg.Rules = append(cfg.Rules, r)
		}
		cfg.Attributes = append(cfg.Attributes, Attribute{Pos: Position{File: file, Line: 5}, Name: "unused" + file, Sources: per("header:A")})
	}
	var last Position
	for i, w := range mustSet(t, cfg).Warnings() {
		if last.File == "a.yaml" && w.Pos.File == "b.yaml" || last.File == w.Pos.File && last.Line > w.Pos.Line {
			t.Fatalf("warning %d is about %v, the one before it about %v", i, w.Pos, last)
		}
		last = w.Pos
	}
	if last.File != "a.yaml" {
		t.Errorf("the last warning is about %v", last)
	}
}
