package rulefile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/rulefile"
)

// emptied is what is left of a rule file when it was cut short before its first rule.
var emptied = map[string]string{
	"0 bytes": "", "white space": " \n\n", "a comment": "# rules\n", "null": "null\n", "a tilde": "~\n", "a marker": "---\n",
	"a byte order mark": "\ufeff", "no list": "rules:\n", "a version": "version: 1\n", "declarations": "attributes: {user: header:X-User}\n",
	"a setting": "client_ip: {hops: 1}\n", "an empty mapping": "{}\n",
	"a domain": "domain: d\n", "a domain without a list": "domain: d\ndescriptors:\n",
}

// TestEmptied is for a file that limits nothing: it never replaces one that does, nor is it enough to start with, unless it
// says so.
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
					t.Errorf("a file that says that there are none: %v", err)
				}
			})
		}
	}
}

// A file without rules that does something else is sound.
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

// TestEmptiedAmongOthers is for a directory: the rules of one emptied file do not vanish because others have some.
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
		t.Errorf("both are gone: %v", err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
