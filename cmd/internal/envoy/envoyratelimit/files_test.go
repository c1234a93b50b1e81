package envoyratelimit

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/rules"
)

const someDomain = "domain: %\ndescriptors:\n  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n"

func filesIn(t *testing.T, s RuleSettings, content map[string]string) *files {
	t.Helper()
	s.Root = t.TempDir()
	for name, text := range content {
		if err := writeAll(filepath.Join(s.Root, name), strings.ReplaceAll(text, "%", strings.NewReplacer("/", "-", ".", "").Replace(name))); err != nil {
			t.Fatal(err)
		}
	}
	return newFiles(s, nil, nil, nil, slog.Default())
}

func TestFilesAreRead(t *testing.T) {
	content := map[string]string{
		"b.yaml": someDomain, "a": someDomain, "c.conf": someDomain, "below/d.yaml": someDomain, ".hidden.yaml": someDomain,
		"..2026/a": someDomain, "rules_test.yaml": "tests: []\n", "odd_test.yaml": someDomain,
	}
	for _, tt := range []struct {
		skip bool
		want []string
	}{
		{false, []string{".hidden.yaml", "a", "b.yaml", "below/d.yaml", "c.conf", "odd_test.yaml"}},
		{true, []string{"a", "b.yaml", "below/d.yaml", "c.conf", "odd_test.yaml"}},
	} {
		f := filesIn(t, RuleSettings{SkipDotFiles: tt.skip}, content)
		if err := os.Symlink("..2026", filepath.Join(f.dir, "..data")); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time partly from the cache
			sources, err := f.read(f.dir)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range sources {
				name, _ := filepath.Rel(f.dir, s.Name)
				got = append(got, filepath.ToSlash(name))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("read %q, want %q", got, tt.want)
			}
		}
	}
}

// A file of a ConfigMap is a symbolic link to a file below ..data, which is a symbolic link too.
func TestConfigMap(t *testing.T) {
	f := filesIn(t, RuleSettings{}, map[string]string{"..2026/d.yaml": someDomain})
	for link, to := range map[string]string{"..data": "..2026", "d.yaml": "..data/d.yaml"} {
		if err := os.Symlink(to, filepath.Join(f.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if sources, err := f.read(f.dir); err != nil || len(sources) != 1 {
		t.Errorf("%d files, %v", len(sources), err)
	}
}

func TestFilesThatAreNoRules(t *testing.T) {
	for _, tt := range []struct {
		content map[string]string
		want    string // empty: valid
	}{
		{map[string]string{}, ""},
		{map[string]string{"a": "{domain: d}\n"}, ""},
		{map[string]string{"a": ""}, "a:1:1: config file cannot have empty domain"},
		{map[string]string{"a": "descriptors: []\n"}, "a:1:1: config file cannot have empty domain"},
		{map[string]string{"a": "rules:\n  - {name: x, limit: 1/s}\n"}, "a:1:1: config file cannot have empty domain"},
		{map[string]string{"a": "'"}, "unclosed quote"},
		{map[string]string{"a": "domain: d\ndescriptors: [\n"}, ""}, // an error when it is compiled
		{map[string]string{"a": "{domain: d\n"}, "a:"},
		{map[string]string{"a": "domain: d\nfoo: 1\n"}, ""}, // an error when it is compiled
		{map[string]string{"a": "---\ndomain: d\n---\n# nothing\n---\ndomain: e\n"}, ""},
		{map[string]string{"a": "---\n---\n"}, "a:1:1: config file cannot have empty domain"},
		{map[string]string{"a": "rules: []\n---\nrules:\n  - {name: x, limit: 1/s}\n"}, "a:3:1: config file cannot have empty domain"},
		{map[string]string{"a": "domain: d\n---\nrules:\n  - {name: x, limit: 1/s}\n"}, "a:3:1: config file cannot have empty domain"},
		{map[string]string{"a": "descriptors: []\n---\ndomain: d\n"}, "a:1:1: config file cannot have empty domain"},
		{map[string]string{"a": "domain: d\n---\n'"}, "a:3:1: "},
		// Only the error of the document itself, and those of the others.
		{map[string]string{"a": "descriptors:\n  - {key: a}\n"}, "a:1:1: config file cannot have empty domain: write domain: and a name at its top"},
		{
			map[string]string{"a": "domain: d\nfoo: 1\n---\ndescriptors:\n  - {key: a}\n---\ndomain: e\nfoo: 1\n"},
			"a:4:1: config file cannot have empty domain: write domain: and a name at its top\n" +
				"a:2:1: config error, unknown key 'foo'\na:8:1: config error, unknown key 'foo'",
		},
	} {
		f := filesIn(t, RuleSettings{}, tt.content)
		_, err := f.read(f.dir)
		if strings.Contains(tt.want, "at its top") {
			if got := strings.ReplaceAll(fmt.Sprint(err), f.dir+"/", ""); got != tt.want {
				t.Errorf("%q: got %s\nwant %s", tt.content, got, tt.want)
			}
			continue
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %s", tt.content, err, tt.want)
		}
		if err != nil && !strings.Contains(tt.want, "domain") && strings.Contains(err.Error(), "empty domain") {
			t.Errorf("%q: the error of invalid YAML mentions a missing domain: %v", tt.content, err)
		}
	}
	f := filesIn(t, RuleSettings{App: "nowhere"}, nil)
	if sources, err := f.read(f.dir); err != nil || len(sources) > 0 {
		t.Errorf("a missing directory: %v, %v", sources, err)
	}
	if err := os.Mkdir(f.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := f.read(f.dir); err != nil {
		t.Error(err)
	}
	if err := os.Remove(f.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := f.read(f.dir); err == nil {
		t.Error("removing the directory removes the rules")
	}
}

func TestRulesThatCannotBeUsed(t *testing.T) {
	var told error
	refuse := errors.New("not here")
	f := newFiles(RuleSettings{}, func(*rules.Set) error { return refuse }, nil, func(err error) { told = err }, slog.Default())
	f.adopt(nil)
	if !errors.Is(told, refuse) {
		t.Error(told)
	}
}
