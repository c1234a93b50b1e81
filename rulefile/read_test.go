package rulefile_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// folder writes files and links between them to a new directory, and returns it.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func names(dir string, sources []rulefile.File) string {
	var all []string
	for _, s := range sources {
		rel, err := filepath.Rel(dir, s.Name)
		if err != nil {
			rel = s.Name
		}
		all = append(all, rel+"="+string(s.Data))
	}
	return strings.Join(all, " ")
}

func TestReadDirectory(t *testing.T) {
	dir := folder(t, map[string]string{
		"b.yaml": "b", "a.yml": "a", "B.yaml": "B", "10.yaml": "10", "9.yaml": "9", "link.yaml": "-> elsewhere/x.yaml",
		"elsewhere/x.yaml": "x", "dir.yaml/inner.yaml": "no", "to-dir.yaml": "-> elsewhere",
		"a_test.yaml": "no", "a_test.yml": "no", ".hidden.yaml": "no", "..data/c.yaml": "no",
		"README.md": "no", "a.yaml.bak": "no", "yaml": "no",
	})
	sources, err := rulefile.ReadFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	const want = "10.yaml=10 9.yaml=9 B.yaml=B a.yml=a b.yaml=b link.yaml=x"
	if got := names(dir, sources); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A Kubernetes config map consists of links to a directory that is replaced as a whole.
func TestReadConfigMap(t *testing.T) {
	dir := folder(t, map[string]string{
		"..2026_01_01/a.yaml": "a", "..data": "-> ..2026_01_01", "a.yaml": "-> ..data/a.yaml",
	})
	sources, err := rulefile.ReadFiles(dir)
	if got := names(dir, sources); err != nil || got != "a.yaml=a" {
		t.Errorf("got %q, error %v", got, err)
	}
}

func TestReadNamedFiles(t *testing.T) {
	dir := folder(t, map[string]string{"rules.conf": "c", "x_test.yaml": "x", "d/a.yaml": "a", "d/b.yaml": "b"})
	sources, err := rulefile.ReadFiles(
		filepath.Join(dir, "x_test.yaml"), filepath.Join(dir, "rules.conf"), filepath.Join(dir, "d", "b.yaml"),
		filepath.Join(dir, "d"), filepath.Join(dir, "d", ".", "a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "x_test.yaml=x rules.conf=c d/b.yaml=b d/a.yaml=a"
	if got := names(dir, sources); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestReadFaults(t *testing.T) {
	dir := folder(t, map[string]string{
		"broken/a.yaml": "-> nowhere", "empty/README.md": "", "large/a.yaml": strings.Repeat("#", 1<<20+1),
		"largest/a.yaml": strings.Repeat("#", 1<<20),
	})
	tests := map[string]struct{ path, want string }{
		"no file":           {"none.yaml", "none.yaml: there is no such file or directory"},
		"a link to nowhere": {"broken", "broken/a.yaml: there is no such file or directory"},
		"no rule files":     {"empty", "empty: no rule files in this directory"},
		"too large":         {"large", "large/a.yaml: the file has more than 1048576 bytes: split it"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := rulefile.ReadFiles(filepath.Join(dir, test.path))
			var fault *rules.Error
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), test.want) || fault.Pos.File == "" {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
	if _, err := rulefile.ReadFiles(filepath.Join(dir, "largest")); err != nil {
		t.Error(err)
	}
	if _, err := rulefile.ReadFiles(); err == nil || !strings.Contains(err.Error(), "give a file or a directory") {
		t.Errorf("nothing to read: %v", err)
	}
	_, err := rulefile.ReadFiles(filepath.Join(dir, "none"), filepath.Join(dir, "large"))
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("got %v, want both errors", err)
	}
}

func TestReadBounds(t *testing.T) {
	many := t.TempDir()
	for i := range rulefile.MaxFiles + 2 {
		if err := os.WriteFile(filepath.Join(many, fmt.Sprintf("%d.yaml", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := rulefile.ReadFiles(many); err == nil || !strings.Contains(err.Error(), "more than 1000 files") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("many files: %v", err)
	}
	large := t.TempDir()
	for i := range 18 {
		data := bytes.Repeat([]byte("#"), rulefile.MaxFileBytes)
		if err := os.WriteFile(filepath.Join(large, fmt.Sprintf("%d.yaml", i)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := rulefile.ReadFiles(large); err == nil || !strings.Contains(err.Error(), "more than 16777216 bytes in total") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("large files: %v", err)
	}
}

func TestLoad(t *testing.T) {
	files := map[string]string{"a.yaml": "rules: [{name: a, limit: 1/s}]", "b.yaml": "rules: [{name: b, limit: 1/s}]"}
	first, err := rulefile.Load(rulefile.Options{DigestSecret: []byte("s"), ChargeDenied: true}, folder(t, files))
	if err != nil {
		t.Fatal(err)
	}
	cfg := first.Set.Config()
	if len(cfg.Rules) != 2 || string(cfg.DigestSecret) != "s" || !cfg.ChargeDenied || len(first.Files) != 2 {
		t.Errorf("got %+v", first)
	}
	same, err := rulefile.Load(rulefile.Options{}, folder(t, files))
	if err != nil || same.Digest != first.Digest || len(first.Digest) != 12 {
		t.Errorf("digests %q and %q of the same files, error %v", first.Digest, same.Digest, err)
	}
	for _, change := range []map[string]string{
		{"a.yaml": files["a.yaml"] + "\n", "b.yaml": files["b.yaml"]},
		{"a.yaml": files["a.yaml"], "c.yaml": files["b.yaml"]},
		{"a.yaml": files["a.yaml"]},
	} {
		other, err := rulefile.Load(rulefile.Options{}, folder(t, change))
		if err != nil || other.Digest == first.Digest {
			t.Errorf("%v: digest %q, error %v", change, other.Digest, err)
		}
	}
}

// Errors of compiling are in the order of the files too.
func TestLoadFaultsOfCompiling(t *testing.T) {
	dir := folder(t, map[string]string{
		"a.yaml": "rules:\n- {name: a, per: [nobody], limit: 1/s}\nallow: [{path: x}]\n",
		"b.yaml": "allow: [{path: y}]\n",
	})
	_, err := rulefile.Load(rulefile.Options{}, dir)
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	for i, want := range []string{"a.yaml:2:19: ", "a.yaml:3:16: ", "b.yaml:1:16: "} {
		if len(lines) != 3 || !strings.Contains(lines[i], want) {
			t.Fatalf("got\n%v\nwant %s in line %d of three", err, want, i+1)
		}
	}
	if _, err := rulefile.Load(rulefile.Options{}, filepath.Join(dir, "c.yaml")); err == nil {
		t.Error("a missing file was loaded")
	}
	bad := folder(t, map[string]string{"a.yaml": "x"})
	if _, err := rulefile.Load(rulefile.Options{}, bad); err == nil {
		t.Error("a bad file was loaded")
	}
}
