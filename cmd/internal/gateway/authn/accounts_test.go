package authn

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/rules"
)

var update = flag.Bool("update", false, "write the results of the transcripts")

// Transcripts are cases of "==== case: NAME", a file, "==== result" and its errors. No error contains a possible secret.
func TestFiles(t *testing.T) {
	for name, open := range map[string]func(path string) error{
		"keys":  func(path string) error { _, err := NewKeys(KeysConfig{Files: []string{path}}); return err },
		"users": func(path string) error { _, err := NewBasic(BasicConfig{Files: []string{path}}); return err },
	} {
		file := filepath.Join("testdata", name+".txt")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for _, c := range strings.Split(string(data), "==== case: ")[1:] {
			title, rest, _ := strings.Cut(c, "\n")
			input, want, _ := strings.Cut(rest, "==== result\n")
			path := filepath.Join(t.TempDir(), "f.yaml")
			put(t, path, input)
			got := strings.ReplaceAll(faultsOf(t, open(path)), path, "FILE")
			if got != want && !*update {
				t.Errorf("%s: %s:\n%s\ngot\n%s\nwant\n%s", name, title, input, got, want)
			}
			if strings.Contains(got, "canary") || strings.Contains(got, "123456789") {
				t.Errorf("%s: %s: a secret is shown:\n%s", name, title, got)
			}
			fmt.Fprintf(&out, "==== case: %s\n%s==== result\n%s", title, input, got)
		}
		if *update {
			put(t, file, out.String())
		}
	}
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func faultsOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var b strings.Builder
	for _, e := range leaves(err) {
		var fault *rules.Error
		if !errors.As(e, &fault) {
			t.Fatalf("%v is no fault with a place", e)
		}
		fmt.Fprintf(&b, "%d:%d: %s\n", fault.Pos.Line, fault.Pos.Column, fault.Msg)
	}
	return b.String()
}

// A hash may be in one file only, and the number of reported errors is bounded.
func TestSeveralFiles(t *testing.T) {
	d := t.TempDir()
	one, two := filepath.Join(d, "one"), filepath.Join(d, "two")
	key, hash := NewKey()
	put(t, one, "keys: [{user: ada, hash: '"+hash+"'}]")
	put(t, two, "keys: [{user: bob, hash: '"+hash+"'}]")
	_, err := NewKeys(KeysConfig{Files: []string{one, two}})
	if got := faultsOf(t, err); !strings.Contains(got, "first at "+one+":1:8: ") {
		t.Errorf("got %s", got)
	}
	_, hash = NewKey()
	put(t, two, "keys: [{user: bob, hash: '"+hash+"'}]")
	k, err := NewKeys(KeysConfig{Files: []string{one, two}})
	if err != nil || k.Len() != 2 {
		t.Fatalf("%v", err)
	}
	if id, err := k.Authenticate(request("X-Api-Key", key)); err != nil || id.User != "ada" {
		t.Errorf("got %v, %v", id, err)
	}
	put(t, two, "keys:\n"+strings.Repeat("- 1\n", 5000))
	if _, err := NewKeys(KeysConfig{Files: []string{one, two}}); len(leaves(err)) != 100 {
		t.Errorf("%d faults", len(leaves(err)))
	}
	put(t, two, strings.Repeat(" ", 1<<20+1))
	if _, err := NewKeys(KeysConfig{Files: []string{two, filepath.Join(d, "none")}}); len(leaves(err)) != 2 {
		t.Errorf("got %v", err)
	}
}
