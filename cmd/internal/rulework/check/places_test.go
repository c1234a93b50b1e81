package check_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/check"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/fileerrors"
)

// doubtful causes a warning on almost every line; each rule is on one line.
const doubtful = `attributes:
  user: {header: X-User}
  lowered: {header: X-Lowered, lowercase: true}
  key: {api_key: X-Key, lowercase: true}
  unused: {header: X-Unused}
allow: [{path: /allowed/**}]
deny: [{path: /denied/**}]
priorities:
  - {match: {path: /a}, priority: low}
  - {match: {path: /a}, priority: high}
  - {match: {path: {suffix: /}}, priority: high}
load_shedding:
  - {name: all}
  - {name: api, match: {path: /api}, concurrency: {min: 5, max: 5}}
rules:
  - {name: allowed, match: {path: /allowed/x}, limit: 1/s}
  - {name: denied, match: {path: /denied/x}, limit: 1/s}
  - {name: excepted, match: {method: POST}, except: {method: [POST, PUT]}, limit: 2/s}
  - {name: dear, match: {path: /dear}, limit: 5/min, cost: 6}
  - {name: may-be-dear, match: {path: /may-be-dear}, limit: 5/min, cost: {header: X-Cost, max: 9}}
  - {name: dear-by-default, match: {path: /dear-by-default}, limit: 5/min, cost: {header: X-Cost, default: 9}}
  - {name: short-lease, match: {path: /short-lease}, limit: {concurrent: 5, permit_ttl: 10ms}}
  - {name: odd, match: {path: /odd}, limit: {rate: 7/min, algorithm: fixed_window, soft_excess: 20%, soft_period: 10s}}
  - {name: rounded, match: {path: /rounded}, limit: {rate: 7/min, algorithm: sliding_window_counter}}
  - {name: coarse, match: {path: /coarse}, limit: 7/s, accuracy: eventual}
  - {name: by-path, match: {path: /by-path}, per: path, limit: 7/s}
  - {name: tiers, match: {path: /tiers}, limit: 7/s, per: user, tiers: {by: user, x: {rate: 5/s, algorithm: fixed_window}}}
  - {name: names, match: {path: /names}, limit: {rate: 7/s, name: long}, per: user, tiers: {by: user, x: 5/s}}
  - {name: first, match: {path: /same}, limit: 7/s, per: user}
  - {name: second, match: {path: /same}, limit: 7/s, per: user}
  - {name: by-address, match: {path: /by-address}, limit: 7/s, per: ip}
  - {name: slash, match: {path: {suffix: /}}, limit: 7/s}
  - {name: no-slash, match: {path: {prefix: a}}, limit: 7/s}
  - {name: spaces, match: {path: /spaces, header: {X-A: {suffix: 'b '}}}, limit: 7/s}
  - {name: upper, match: {lowered: ABC}, per: lowered, limit: 7/s, overrides: {ABC: 1/s}}
  - {name: secret, match: {path: /secret}, per: key, limit: 7/s, overrides: {ABC: 1/s}}
  - {name: hosts, match: {path: /hosts}, per: host, limit: 7/s, overrides: {'*.example.com': 1/s}}
  - {name: paths, match: {path: '/paths/{id}'}, per: 'path:id', limit: 7/s, overrides: {'*': 1/s}}
  - {name: never, match: {path: /never}, per: user, limit: 7/s, overrides: {'a ': 1/s}}
  - {name: queued, match: {path: /queued}, limit: 7/s, on_limit: queue}
  - {name: patient, match: {path: /patient}, limit: {rate: 1000/s, algorithm: token_bucket}, on_limit: delay, max_delay: 8760h}
---
domain: d
descriptors:
  - {key: a, value: 'x*', rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: a, value: 'xy*', rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: b}
  - {key: c, value: '*', rate_limit: {unit: day, requests_per_unit: 5, name: cc, replaces: [{name: zz}]}}
  - {key: c, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: e, rate_limit: {unlimited: true, name: ee}}
  - {key: f, rate_limit: {unit: day, requests_per_unit: 5, replaces: [{name: ee}]}}
`

// Every possible warning names its file, line and rule, and gives the position of every other entry that it names.
func TestWarningsHavePlaces(t *testing.T) {
	dir := t.TempDir()
	file, alone, cfg := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "alone.yaml"), filepath.Join(dir, "sluice.yaml")
	for name, text := range map[string]string{
		file: doubtful, alone: "priorities: [{match: {path: /a}, priority: low}]\n",
		cfg: "rules: {paths: [rules.yaml]}\nstore: {snapshot_file: missing/snapshot}\ncheck_api: {reservation_secret_file: missing/secret}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found := findings(t, cfg, func(c *config.Config) ([]error, error) {
		return []error{fmt.Errorf("store: %s: is slow", c.Store.SnapshotFile)}, errors.Join(fmt.Errorf("check_api.reservation_secret_file: %s: no such file", c.CheckAPI.ReservationSecretFile), errors.New("out of memory"))
	})
	found = append(found, findings(t, alone, nil)...)
	ruleName := regexp.MustCompile(`^  - \{name: ([a-z-]+), (?:match|limit)`)
	inRules := false
	names := make(map[int]string) // by line
	for i, line := range strings.Split(doubtful, "\n") {
		inRules = inRules || line == "rules:"
		if m := ruleName.FindStringSubmatch(line); m != nil && inRules {
			names[i+1] = m[1]
		} else if strings.HasPrefix(line, "  - {key:") {
			names[i+1] = "d/" + line[len("  - {key: "):][:1]
		}
	}
	for _, f := range found {
		wanted := names[f.Line]
		if f.File != file {
			wanted = ""
		}
		switch {
		case f.Severity != "warning" || f.File == "" || f.Line == 0 || f.Column == 0 || f.Text == "":
			t.Errorf("no place: %+v", f)
		case !strings.HasPrefix(f.Rule, wanted) || (f.Rule == "") != (wanted == ""):
			t.Errorf("%s:%d is about rule %q, the warning about %q: %s", f.File, f.Line, wanted, f.Rule, f.Message)
		case regexp.MustCompile(`\b(in entry|with number|of this set)\b`).MatchString(f.Message):
			t.Errorf("another entry without its place: %s", f.Message)
		}
		if f.File == cfg && strings.Contains(f.Message, "secret_file") && f.Line != 3 || strings.Contains(f.Message, "is slow") && f.Line != 2 {
			t.Errorf("wrong place in the configuration: %+v", f)
		}
	}
	kinds := warningKinds(t)
	if len(kinds) < 25 {
		t.Errorf("only %d kinds of warnings were found in the sources", len(kinds))
	}
	for _, kind := range append(kinds, "on_limit: queue needs listeners.gateway.address", "hardly ever denies", "sluice serve would not start on this host: check_api.reservation_secret_file") {
		if !slices.ContainsFunc(found, func(f fileerrors.Diagnostic) bool { return regexp.MustCompile(kind).MatchString(f.Message) }) {
			t.Errorf("the files of this test have nothing to warn of with %s: add it", kind)
		}
	}
}

// findings returns the errors and warnings of check for a file. The text has the position before each.
func findings(t *testing.T, path string, start func(*config.Config) ([]error, error)) []fileerrors.Diagnostic {
	t.Helper()
	report, err := check.Files(t.Context(), check.Options{
		Warn: true, IsAccounts: func([]byte) bool { return false }, Authentication: func(*config.Authentication) error { return nil }, Start: start,
	}, []string{path})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := report.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if line := fmt.Sprintf("%s:%d:%d: %s: ", f.File, f.Line, f.Column, f.Severity); !strings.Contains(text.String(), line) {
			t.Errorf("the text lacks %s", line)
		}
	}
	return report.Findings
}

// warningKinds returns the formats of all warnings in the sources of package rules, as regular expressions.
func warningKinds(t *testing.T) (kinds []string) {
	t.Helper()
	files, err := filepath.Glob("../../../../rules/*.go")
	if err != nil {
		t.Fatal(err)
	}
	verb := regexp.MustCompile(`%(\\\.0f|[a-z])`)
	add := func(e ast.Expr) {
		text := folded(e)
		if len(text) < 20 { // parts of messages
			return
		}
		text = strings.ReplaceAll(regexp.QuoteMeta(text), "%%", "%")
		kinds = append(kinds, verb.ReplaceAllString(text, ".*"))
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			spelling := f.Name.Name == "doubts" || f.Name.Name == "doubtEnd"
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if s, ok := n.Fun.(*ast.SelectorExpr); ok && (s.Sel.Name == "warn" || spelling && s.Sel.Name == "Sprintf") {
						for _, arg := range n.Args {
							add(arg)
						}
					}
				case *ast.AssignStmt:
					if spelling {
						add(n.Rhs[0])
					}
				case *ast.CompositeLit:
					if i, ok := n.Type.(*ast.Ident); ok && i.Name == "Warning" {
						for _, e := range n.Elts {
							add(e)
						}
					}
				}
				return true
			})
		}
	}
	return kinds
}

// folded returns the text of joined string literals, or "" for another expression.
func folded(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		return folded(e.X) + folded(e.Y)
	}
	return ""
}
