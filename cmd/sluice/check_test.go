package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// Rules with on_limit: queue get a warning if the configuration has no gateway or no queue.
func TestCheckQueues(t *testing.T) {
	const gateway = "listeners: {gateway: {address: '127.0.0.1:8000'}}\n" +
		"gateway: {upstreams: {api: {servers: ['http://127.0.0.1:9000']}}, routes: [{upstream: api}]}\n"
	for name, test := range map[string]struct {
		cfg  string
		code int
	}{
		"no gateway": {"queue: {directory: queue}\n", 1},
		"no queue":   {gateway, 1},
		"both":       {gateway + "queue: {directory: queue}\n", 0},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "rules.yaml"), "rules: [{name: r, match: {path: /a}, limit: 5/min, on_limit: queue}]\n")
		write(t, filepath.Join(dir, "sluice.yaml"), test.cfg+"rules: {paths: [rules.yaml]}\n")
		var out strings.Builder
		code := run(t.Context(), []string{"check", filepath.Join(dir, "sluice.yaml")}, &out, &out)
		if code != test.code || strings.Contains(out.String(), "on_limit: queue needs listeners.gateway.address") != (code == 1) {
			t.Errorf("%s: exit %d, printed\n%s", name, code, &out)
		}
		if code := run(t.Context(), []string{"check", filepath.Join(dir, "rules.yaml")}, &out, &out); code != 0 {
			t.Errorf("the rules alone: exit %d, printed\n%s", code, &out)
		}
	}
}

// Errors about common mistakes are correct and say what to do.
func TestCheckAdvice(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":    {"", ":1:1: error: the file is empty: write rules: and a list of rules below it, or rules: [] for no rules; in a configuration file write settings, or {} for the defaults"},
		"comments": {"# listeners:\n", ":1:1: error: the file is empty: "},
		"rules":    {"rules:\n", ":1:7: error: rules: is empty: write a list of rules, one \"- name: …\" each, or rules: [] for no rules"},
		"path":     {"rules: [{name: a, per: path, limit: 5/s, overrides: {'/a;b': 10/s}}]\n", "rule a: overrides: the path is ambiguous or malformed: contains a semicolon"},
		"network": {
			"rules: [{name: a, per: ip, limit: 5/s, overrides: {10.0.0.0/8: 10/s}}]\n",
			"rule a: overrides: 10.0.0.0/8 is not the prefix of one client, such as 10.0.0.0/32: write a client's address; for a network write a rule with match: {ip: 10.0.0.0/8}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "sluice.yaml")
			write(t, file, c.text)
			if code, out, _ := sluiceRun(t, "check", file); code != term.ExitFindings || !strings.Contains(out, file+c.want) && !strings.Contains(out, ": error: "+c.want) {
				t.Errorf("exit %d, want %q in\n%s", code, c.want, out)
			}
		})
	}
}

// The summary counts only files with errors, including missing files that a configuration names. A file named as an argument that
// cannot be read makes the exit code 2.
func TestCheckCountsFilesWithErrors(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"good.yaml":    "rules: [{name: a, match: {path: /a}, limit: 1/s}]\n",
		"bad.yaml":     "rules: [{name: b, match: {path: /b}, limit: 5}]\n",
		"both.yaml":    "listeners: {http: {address: 1}}\nrules: {paths: [bad.yaml]}\n",
		"rules.yaml":   "rules: {paths: [bad.yaml]}\nlisteners: {}\n",
		"config.yaml":  "listeners: {http: {address: 1}}\nrules: {paths: [good.yaml]}\n",
		"missing.yaml": "rules: {paths: [nosuch.yaml]}\nlisteners: {}\n",
	} {
		write(t, in(name), text)
	}
	for args, want := range map[string]string{
		"bad.yaml":           "1 error in 1 file\n",
		"bad.yaml good.yaml": "1 error in 1 file\n",
		"both.yaml":          "2 errors in 2 files\n",
		"rules.yaml":         "1 error in 1 file\n",
		"config.yaml":        "1 error in 1 file\n",
		"missing.yaml":       "1 error in 1 file\n",
	} {
		var paths []string
		for _, name := range strings.Fields(args) {
			paths = append(paths, in(name))
		}
		code, out, stderr := sluiceRun(t, append([]string{"check"}, paths...)...)
		if code != term.ExitFindings || !strings.HasSuffix(out, "\n"+want) {
			t.Errorf("sluice check %s: exit %d, want %q at the end of\n%s%s", args, code, want, out, stderr)
		}
	}
	if code, out, _ := sluiceRun(t, "check", in("nosuch.yaml")); code != term.ExitWrong || out != "" {
		t.Errorf("a missing file: exit %d, %s", code, out)
	}
}
