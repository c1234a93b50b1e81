package rulefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// Each NAME.in.yaml becomes NAME.out.yaml. Run with -update to write those.
func TestFormatGolden(t *testing.T) {
	names := glob(t, "testdata/format/*.in.yaml", 8)
	for _, name := range names {
		out, err := rulefile.Format(name, readFile(t, name))
		if err != nil {
			t.Error(err)
			continue
		}
		golden := strings.TrimSuffix(name, ".in.yaml") + ".out.yaml"
		if *update {
			if err := os.WriteFile(golden, out, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if want := readFile(t, golden); string(out) != string(want) {
			t.Errorf("%s becomes\n%s\nwant\n%s", name, out, want)
		}
	}
}

func glob(t testing.TB, pattern string, least int) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) < least {
		t.Fatalf("%s: %d files, %v", pattern, len(names), err)
	}
	return names
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Formatting a formatted file changes nothing: the golden files, and the examples.
func TestFormatTwice(t *testing.T) {
	for _, name := range append(glob(t, "testdata/format/*.out.yaml", 8), exampleFiles(t)...) {
		src := readFile(t, name)
		if out, err := rulefile.Format(name, src); err != nil || string(out) != string(src) {
			t.Errorf("%s: %v: becomes\n%s", name, err, out)
		}
	}
}

// Rules load in both forms.
func TestFormatLoads(t *testing.T) {
	for _, name := range exampleFiles(t) {
		if strings.HasSuffix(name, "_test.yaml") {
			continue
		}
		sloppy := strings.ReplaceAll(string(readFile(t, name)), "\n  ", "\n     ")
		out, err := rulefile.Format(name, []byte(sloppy))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, text := range []string{sloppy, string(out)} {
			if err := read(text); err != nil {
				t.Errorf("%s: %v\n%s", name, err, text)
			}
		}
	}
}

func TestFormatRefuses(t *testing.T) {
	for _, tt := range []struct{ name, src, want string }{
		{"invalid YAML", "rules:\n  - name: a\n limit: [1/s\n", "x.yaml:3:"},
		{"a key twice", "a: 1\na: 2\n", "x.yaml:2:1: "},
		{"a list", "- a\n", "x.yaml:1:1: the file is not a mapping"},
		{"a text", "hello\n", "x.yaml:1:1: the file is not a mapping"},
		{"a directive", "%YAML 1.2\n---\na: 1\n", "x.yaml:1:1: "},
		{"a tag", "a: !!str 1\n", "x.yaml:1:4: "},
		{"not UTF-8", "a: \xff\n", "x.yaml:1:4: "},
		{"too large", "a: " + strings.Repeat("x", rulefile.MaxFileBytes), "x.yaml:1:1: "},
	} {
		out, err := rulefile.Format("x.yaml", []byte(tt.src))
		var fault *rules.Error
		if out != nil || err == nil || !strings.HasPrefix(err.Error(), tt.want) || !errors.As(err, &fault) {
			t.Errorf("%s: %q, %v; want %s", tt.name, out, err, tt.want)
		}
	}
}

func TestFormatSmall(t *testing.T) {
	for src, want := range map[string]string{
		"":                               "",
		"\n\n":                           "",
		"# a\n\n\n\n# b  ":               "# a\n\n# b\n",
		"---\n":                          "",
		"a:":                             "a:\n",
		"\ufeffa: 1":                     "a: 1\n",
		"a: 1\r\n# b\r\nc: 'd'  \r\n":    "a: 1\n# b\nc: 'd'\n",
		"a: {}\nb: [ ]\nc: { # d\n}":     "a: {}\nb: []\nc: {} # d\n",
		"a:\n  # b\n  c # d":             "# b\na: c # d\n",
		"a: &x\n- b\nc: *x\n":            "a: &x\n  - b\n\nc: *x\n",
		"a: |+\n  b\n\n\nc: d\n":         "a: |+\n  b\n\n\nc: d\n",
		"a: [\"\\u0041\",2001:db8::1]\n": "a: [\"\\u0041\", 2001:db8::1]\n",
	} {
		if out, err := rulefile.Format("x.yaml", []byte(src)); err != nil || string(out) != want {
			t.Errorf("%q becomes %q, %v; want %q", src, out, err, want)
		}
	}
}

// formatSeeds returns the seeds for fuzzing.
func formatSeeds(t testing.TB) [][]byte {
	t.Helper()
	var all [][]byte
	for _, name := range append(glob(t, "testdata/format/*.in.yaml", 8), exampleFiles(t)...) {
		all = append(all, readFile(t, name))
	}
	return append(all,
		[]byte("a: &x\n  - 1\nb: *x\nc: >+\n  a\n  b\n\n\nd: |2\n   e\n"), []byte("k: [a, # c\n b, {c: d\n }]\n"))
}

// exampleFiles returns all rule and test files of the examples.
func exampleFiles(t testing.TB) []string {
	t.Helper()
	return glob(t, "../examples/rules/*/*.yaml", 26)
}

// read reads a rule file.
func read(text string) error {
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "x.yaml", Data: []byte(text)})
	if err == nil {
		_, err = rules.New(cfg)
	}
	return err
}
