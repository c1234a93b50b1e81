package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// All commands read every YAML document of a rule file.
func TestDocumentsOfAFile(t *testing.T) {
	dir := t.TempDir()
	file, tests := filepath.Join(dir, "limits.yaml"), filepath.Join(dir, "limits_test.yaml")
	write(t, file, `client_ip: {trusted_proxies: []}
rules:
  - {name: first, match: {path: /a}, per: ip, limit: 1/s}
---
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: second, requests_per_unit: 5}}
---
rules:
  - {name: second, match: {path: /b}, per: ip, limit: 2/s}
`)
	write(t, tests, `rules: limits.yaml
tests:
  - name: the rule of the last document
    requests:
      - {request: GET /b, ip: 192.0.2.1, times: 3, expect: {allow: 2, deny: 1}, rule: second}
`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"check", file}, "ok: 2 rules, 1 limit of domain shop in 1 file"},
		{[]string{"fmt", "--check", file}, ""},
		{[]string{"explain", "--rules", file, "/b"}, "second"},
		{[]string{"explain", "--rules", file, "--domain", "shop", "user=ada"}, "5/s"},
		{[]string{"limits", file}, "second"},
		{[]string{"test", dir}, "ok"},
	} {
		code, out, errs := sluiceRun(t, c.args...)
		if code != term.ExitFine || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit %d\n%s%s", c.args, code, out, errs)
		}
	}
}

// A missing file is a readable error, and the other files are still read.
func TestMissingFiles(t *testing.T) {
	dir := t.TempDir()
	there, missing := filepath.Join(dir, "there.yaml"), filepath.Join(dir, "missing.yaml")
	write(t, there, "rules:\n  - {name: a, limit: 1/s}\n")
	for _, args := range [][]string{
		{"fmt", missing},
		{"fmt", missing, there},
		{"check", missing},
		{"explain", "--rules", missing, "/"},
		{"limits", missing},
		{"simulate", "--rules", there, missing},
		{"simulate", "--rules", missing, there},
		{"serve", "--config", missing},
	} {
		code, _, errs := sluiceRun(t, args...)
		if code != term.ExitWrong || !strings.Contains(errs, missing+": there is no such file") {
			t.Errorf("%v: exit %d: %s", args, code, errs)
		}
	}
	if _, out, _ := sluiceRun(t, "fmt", missing, there); !strings.Contains(out, "name: a") {
		t.Errorf("fmt does not print the existing file: %q", out)
	}
	if code, _, errs := sluiceRun(t, "serve", "--config", there); code != term.ExitWrong || !strings.Contains(errs, "this is a rule file") {
		t.Errorf("serve: exit %d: %s", code, errs)
	}
}
