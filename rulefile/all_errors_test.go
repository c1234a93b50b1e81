package rulefile_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// plant is an error that can replace a line of a valid file.
type plant struct{ line, wrong, msg string }

// In validRule and its plants, N is the number of the rule. Each line can be wrong independently of all others.
var validRule = []string{
	"  - name: rule-N",
	"    match:",
	"      path: /a/N/**",
	"      method: GET",
	"    except: {path: /a/N/health}",
	"    per: [user, ip]",
	"    limit: {rate: 5/s, burst: 10}",
	"    tiers: {by: plan, pro: 9/s}",
	"    cost: {header: X-Cost}",
	"    on_missing: skip",
	"    enforce: 20%",
	"    on_failure: closed",
	"    actual_cost: {header: X-Used}",
}

var rulePlants = []plant{
	{"  - name: rule-N", "  - description: nameless", "the rule has no name"},
	{"  - name: rule-N", "  - name: spare", "a rule with this name"},
	{"  - name: rule-N", "  - name: two words-N", "printable ASCII"},
	{"  - name: rule-N", "  - name: \"rule-N", "unclosed quote"},
	{"  - name: rule-N", "  - nme: rule-N", `did you mean "name"`},
	{"  - name: rule-N", "  - name: [rule-N]", "name: is a list"},
	{"      path: /a/N/**", "      path: a/N", "path"},
	{"      path: /a/N/**", "      path: /a/{N/**", "path"},
	{"      path: /a/N/**", "      pth: /a/N", `did you mean "path"`},
	{"      path: /a/N/**", "      path: *.html", "is an alias"},
	{"      method: GET", "      method: {list: nosuch}", `no list "nosuch"`},
	{"      method: GET", "      method: [GET", "has no end"},
	{"      method: GET", "      method:", "is empty"},
	{"    except: {path: /a/N/health}", "    except: {path: nowhere}", "path"},
	{"    except: {path: /a/N/health}", "    except: {foo: 1}", `no key "foo"`},
	{"    per: [user, ip]", "    per: [nosuch]", `no attribute "nosuch"`},
	{"    per: [user, ip]", "    per: [user, user]", "twice"},
	{"    per: [user, ip]", "    per: user, ip", "write a list"},
	{"    per: [user, ip]", "    per: [user, ip", "has no end"},
	{"    per: [user, ip]", "    per: !!str user", "tags such as"},
	{"    limit: {rate: 5/s, burst: 10}", "    limit: 5", "has no unit"},
	{"    limit: {rate: 5/s, burst: 10}", "    limit: {rate: 5/s, brst: 10}", `did you mean "burst"`},
	{"    limit: {rate: 5/s, burst: 10}", "    limit: {rate: 5/s, burst: 10", "has no end"},
	{"    limit: {rate: 5/s, burst: 10}", "    limit: {rate: 5/s, soft_excess: 2}", "limit: "},
	{"    limit: {rate: 5/s, burst: 10}", "    lmit: 5/s", `did you mean "limit"`},
	{"    limit: {rate: 5/s, burst: 10}", "    rate: 5/s", "write limit: 100/min"},
	{"    tiers: {by: plan, pro: 9/s}", "    tiers: {by: nosuch, pro: 9/s}", `no attribute "nosuch"`},
	{"    tiers: {by: plan, pro: 9/s}", "    tiers: {by: plan, pro: 9/minit}", "tiers: pro"},
	{"    tiers: {by: plan, pro: 9/s}", "    tiers: {pro: 9/s}", "there is no by"},
	{"    tiers: {by: plan, pro: 9/s}", "    tiers: by: plan", "second colon"},
	{"    cost: {header: X-Cost}", "    cost: {attribute: nosuch}", `no attribute "nosuch"`},
	{"    cost: {header: X-Cost}", "    cost: {attribute: ip}", "an address is not a number"},
	{"    cost: {header: X-Cost}", "    cost: many", "cost: is"},
	{"    on_missing: skip", "    on_missing: ignore", "on_missing: is"},
	{"    on_missing: skip", "    colour: blue", `no key "colour"`},
	{"    enforce: 20%", "    enforce: 0%", "enforce: is 0%"},
	{"    on_failure: closed", "    on_failure: shut", "on_failure: is"},
	{"    on_failure: closed", "    on_failure: @closed", "cannot begin with @"},
	{"    on_failure: closed", "\ton_failure: closed", "indented with a tab"},
	{"    actual_cost: {header: X-Used}", "    actual_cost: {header: X-Used, json: a.b}", "either header"},
	{"    actual_cost: {header: X-Used}", "    actual_cost: {strip_header: perhaps}", "write true or false"},
}

var validSections = []string{
	"unmatched: allow",
	"attributes:",
	"  user: {header: X-User}",
	"  plan: {jwt: plan}",
	"lists:",
	"  offices: [192.0.2.1]",
	"client_ip: {hops: 2}",
	"deny:",
	"  - {ip: {list: offices}}",
	"  - {path: /secret/**}",
	"rules:",
	"  - {name: spare, limit: 1/s}",
}

var sectionPlants = []plant{
	{"unmatched: allow", "unmatched: pass", "unmatched: is"},
	{"unmatched: allow", "unmatched: 'allow", "unclosed quote"},
	{"unmatched: allow", "unmatchd: allow", `did you mean "unmatched"`},
	{"  user: {header: X-User}", "  user: {header: X User}", "not a header name"},
	{"  user: {header: X-User}", "  user: {header: X-User", "has no end"},
	{"  plan: {jwt: plan}", "  plan: nosuch", `no attribute "nosuch"`},
	{"  plan: {jwt: plan}", "  plan: *jwt", "alias for an anchor"},
	{"  offices: [192.0.2.1]", "  offices: 192.0.2.1", "write a list of values"},
	{"  offices: [192.0.2.1]", "  offices: [192.0.2.1", "has no end"},
	{"  offices: [192.0.2.1]", "  offices: [\u2028]", "invisible character"},
	{"client_ip: {hops: 2}", "client_ip: {hops: 0}", "hops"},
	{"  - {path: /secret/**}", "  - {path: secret}", "path"},
	{"  - {path: /secret/**}", "  - {pth: /secret}", `did you mean "path"`},
	{"  - {path: /secret/**}", "  - {path: /secret", "has no end"},
}

// All errors of a file are reported at once: those that were planted, each at its line, and no others.
func TestAllErrorsAtOnce(t *testing.T) {
	const rounds = 25
	for round := range rounds {
		random := rand.New(rand.NewPCG(uint64(round), 29))
		const ruleCount = 4
		number := func(text string, n int) string { return strings.ReplaceAll(text, "N", fmt.Sprint(n)) }
		lines, all := slices.Clone(validSections), slices.Clone(sectionPlants)
		for n := range ruleCount {
			for _, line := range validRule {
				lines = append(lines, number(line, n))
			}
			for _, p := range rulePlants {
				all = append(all, plant{number(p.line, n), number(p.wrong, n), p.msg})
			}
		}
		want := make(map[int]plant)
		for range 1 + random.IntN(8) {
			p := all[random.IntN(len(all))]
			if at := slices.Index(lines, p.line); at >= 0 && !dependent(lines, want, at, p) {
				lines[at], want[at+1] = p.wrong, p
			}
		}
		checkPlanted(t, strings.Join(lines, "\n")+"\n", want)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

// dependent reports whether an error would be part of another: a tab makes its line part of the line above, and of two
// rules with the name of a third only one error is reported.
func dependent(lines []string, planted map[int]plant, at int, p plant) bool {
	_, above := planted[at]
	_, below := planted[at+2]
	tab := strings.HasPrefix(p.wrong, "\t")
	return tab && above || below && strings.HasPrefix(lines[at+1], "\t")
}

func checkPlanted(t *testing.T, text string, want map[int]plant) {
	t.Helper()
	_, err := rulefile.LoadFiles(rulefile.Options{}, rulefile.File{Name: "rules.yaml", Data: []byte(text)})
	if len(want) == 0 && err == nil {
		return
	}
	found := make(map[int]string)
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			var e *rules.Error
			if !errors.As(one, &e) || e.Pos.File != "rules.yaml" || e.Pos.Column == 0 {
				t.Errorf("an error without a position: %v", one)
				continue
			}
			if found[e.Pos.Line] != "" {
				t.Errorf("a second error in line %d: %s", e.Pos.Line, e.Msg)
			}
			found[e.Pos.Line] = e.Msg
		}
	}
	for line, p := range want {
		if !strings.Contains(found[line], p.msg) {
			t.Errorf("line %d, %q: reported %q, want %q", line, p.wrong, found[line], p.msg)
		}
		delete(found, line)
	}
	for line, msg := range found {
		t.Errorf("line %d has no error and is reported: %s", line, msg)
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}
