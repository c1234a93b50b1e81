package rulefile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/rulefile"
)

// emptied contains rule files that were truncated before their first rule.
var emptied = map[string]string{
	"0 bytes": "", "white space": " \n\n", "a comment": "# rules\n", "null": "null\n", "a tilde": "~\n", "a marker": "---\n",
	"a byte order mark": "\ufeff", "no list": "rules:\n", "a version": "version: 1\n", "declarations": "attributes: {user: header:X-User}\n",
	"a setting": "client_ip: {hops: 1}\n", "an empty mapping": "{}\n",
	"a domain": "domain: d\n", "a domain without a list": "domain: d\ndescriptors:\n",
}

// TestEmptied checks that a file without limits never replaces one with limits, and is not enough to start with, unless
// it contains rules: [].
func TestEmptied(t *testing.T) {
	for name, text := range emptied {
		for start, rules := range map[string]string{
			"native": "rules: [{name: a, limit: 1/s}]\n",
			"envoy":  "domain: d\ndescriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 1}}]\n",
		} {
			t.Run(start+"/"+name, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "rules.yaml")
				write(t, file, text)
				if _, err := rulefile.Load(rulefile.Options{}, file); err == nil || !strings.Contains(err.Error(), "[]") {
					t.Errorf("at the start: %v: want an error that says what to write", err)
				}
				write(t, file, rules)
				w, err := rulefile.NewWatcher(rulefile.WatchConfig{Paths: []string{file}, Debounce: time.Nanosecond})
				if err != nil {
					t.Fatal(err)
				}
				set := w.Set()
				write(t, file, text)
				if err := w.Reload(); err == nil || w.Set() != set {
					t.Errorf("while it runs: %v: want an error and the rules before", err)
				}
				none := "rules: []\n"
				if start == "envoy" {
					none = "domain: d\ndescriptors: []\n"
				}
				write(t, file, none)
				if err := w.Reload(); err != nil || w.Set() == set {
					t.Errorf("a file with rules: []: %v", err)
				}
			})
		}
	}
}

// A file without rules that has another effect is valid.
func TestNotEmptied(t *testing.T) {
	for _, text := range []string{
		"deny: [{ip: 10.0.0.0/8}]\n", "allow: [{ip: 10.0.0.0/8}]\n", "unmatched: deny\n", "deny: [{ip: 10.0.0.0/8}]\nallow: []\n",
	} {
		file := filepath.Join(t.TempDir(), "rules.yaml")
		write(t, file, text)
		if _, err := rulefile.Load(rulefile.Options{}, file); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestEmptiedAmongOthers checks a directory: one emptied file is an error, even if other files have rules.
func TestEmptiedAmongOthers(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), "rules: [{name: a, limit: 1/s}]\n")
	write(t, filepath.Join(dir, "b.yaml"), "rules: [{name: b, limit: 1/s}]\n")
	w, err := rulefile.NewWatcher(rulefile.WatchConfig{Paths: []string{dir}, Debounce: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	set := w.Set()
	write(t, filepath.Join(dir, "b.yaml"), "")
	if err := w.Reload(); err == nil || !strings.Contains(err.Error(), "b.yaml:1:1: the file is empty") || w.Set() != set {
		t.Errorf("one of two is empty: %v", err)
	}
	for _, name := range []string{"a.yaml", "b.yaml"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Reload(); err == nil || w.Set() != set {
		t.Errorf("both are empty: %v", err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
