package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rulefile"
)

const unformatted = "rules:\n    -   {  name: a,   limit:   1/s }   # why\n"

func TestFmt(t *testing.T) {
	want, err := rulefile.Format("a.yaml", []byte(unformatted))
	if err != nil || string(want) == unformatted {
		t.Fatalf("%v, %q", err, want)
	}
	dir := t.TempDir()
	file, link := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "link.yml")
	write(t, file, unformatted)
	write(t, filepath.Join(dir, "notes.txt"), "not YAML: [")
	if err := os.Symlink("a.yaml", link); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}

	if code, out, _ := sluiceRun(t, "fmt", file); code != term.ExitFine || out != string(want) {
		t.Errorf("fmt: exit %d\n%s", code, out)
	}
	if code, out, _ := sluiceRun(t, "fmt", "-l", dir); code != term.ExitFine || out != file+"\n"+link+"\n" {
		t.Errorf("fmt -l: exit %d\n%s", code, out)
	}
	code, out, _ := sluiceRun(t, "fmt", "--check", file)
	if code != term.ExitFindings || out != file+"\n" || read(t, file) != unformatted {
		t.Errorf("fmt --check: exit %d\n%s", code, out)
	}
	if code, out, _ := sluiceRun(t, "fmt", "-w", link); code != term.ExitFine || out != "" || read(t, file) != string(want) {
		t.Errorf("fmt -w: exit %d\n%s%s", code, out, read(t, file))
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("fmt -w has replaced the link: %v %v", info, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("fmt -w has changed the mode: %v %v", info, err)
	}
	if code, out, _ := sluiceRun(t, "fmt", "--check", dir); code != term.ExitFine || out != "" {
		t.Errorf("fmt --check afterwards: exit %d\n%s", code, out)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("fmt left temporary files: %v %v", entries, err)
	}
}

func TestFmtOfBrokenFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	write(t, file, "rules: [")
	code, _, stderr := sluiceRun(t, "fmt", "-w", file)
	if code != term.ExitWrong || !strings.Contains(stderr, file) || read(t, file) != "rules: [" {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if code, _, stderr = sluiceRun(t, "fmt", "-w"); code != term.ExitWrong || !strings.Contains(stderr, "need a file or directory") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// Each schema is JSON and declares its dialect in $schema, which editors need.
func TestSchema(t *testing.T) {
	for _, kind := range schemaKinds {
		code, out, stderr := sluiceRun(t, "schema", kind)
		if code != term.ExitFine || !strings.Contains(out, `"$schema"`) || !strings.HasSuffix(out, "}\n") {
			t.Errorf("schema %s: exit %d, %.200s %s", kind, code, out, stderr)
		}
	}
	code, _, stderr := sluiceRun(t, "schema", "rule")
	if code != term.ExitWrong || !strings.Contains(stderr, "rules, envoy, test") {
		t.Errorf("schema rule: exit %d, %s", code, stderr)
	}
}

// Names of files are printed without control characters, which could be escape sequences for the terminal.
func TestFmtNamesArePrintable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a\x1b[31m.yaml")
	if err := os.WriteFile(file, []byte("rules:   []\n"), 0o600); err != nil {
		t.Skip("the file system rejects the name:", err)
	}
	for _, flag := range []string{"-l", "--check"} {
		if _, out, _ := sluiceRun(t, "fmt", flag, file); strings.Contains(out, "\x1b") || !strings.Contains(out, ".yaml") {
			t.Errorf("fmt %s prints %q", flag, out)
		}
	}
}
