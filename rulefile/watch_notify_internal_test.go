package rulefile

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layFiles creates a tree of files below a new directory: "a/b" is a file, "a/" a directory and "a -> b" a link. ROOT
// in the target of a link is the new directory.
func layFiles(t *testing.T, entries ...string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name, target, link := strings.Cut(e, " -> ")
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		switch {
		case link:
			err = os.Symlink(strings.Replace(target, "ROOT", root, 1), path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o700)
		default:
			err = os.WriteFile(path, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// describePlaces returns places as "dir: name name", and "dir: *" if all names matter.
func describePlaces(root string, p places) string {
	var lines []string
	for _, dir := range slices.Sorted(maps.Keys(p)) {
		list := "*"
		if names := p[dir]; names != nil {
			list = strings.Join(slices.Sorted(maps.Keys(names)), " ")
		}
		dir = strings.TrimPrefix(strings.TrimPrefix(dir, root), "/")
		lines = append(lines, dir+": "+list)
	}
	return strings.Join(lines, "; ")
}

func TestWatchPlaces(t *testing.T) {
	for _, c := range []struct {
		name    string
		entries []string
		paths   string
		want    string
	}{
		{"a directory", []string{"r/a.yaml", "r/sub/b.yaml"}, "r", "r: *"},
		{"a file", []string{"r/a.yaml", "r/b.yaml"}, "r/a.yaml", "r: a.yaml"},
		{"two files", []string{"r/a.yaml", "r/b.yaml"}, "r/a.yaml r/b.yaml", "r: a.yaml b.yaml"},
		{"a file and its directory", []string{"r/a.yaml"}, "r/a.yaml r", "r: *"},
		{"a directory and its file", []string{"r/a.yaml"}, "r r/a.yaml", "r: *"},
		{"nothing yet", []string{"r/"}, "r/x/y/z.yaml", "r: x"},
		{"a file for a directory", []string{"r"}, "r/x/y", ": r"},
		{"a link", []string{"v1/a.yaml", "r -> v1"}, "r", ": r; v1: *"},
		{"an absolute link", []string{"v1/a.yaml", "r -> ROOT/v1"}, "r", ": r; v1: *"},
		{"a link on the way", []string{"v/1/r/a.yaml", "s/now -> ../v/1"}, "s/now/r", "s: now; v/1/r: *"},
		{"a chain", []string{"v1/a.yaml", "x/y -> ../v1", "r -> x/y"}, "r/a.yaml", ": r; v1: a.yaml; x: y"},
		{"a link to nothing", []string{"r -> x/y"}, "r/a.yaml", ": r x"},
		{"a circle", []string{"r -> s", "s -> r"}, "r", ": r s"},
		{
			"links in a directory",
			[]string{"p/a.yaml", "q/sub/", "r/a.yaml -> ../p/a.yaml", "r/d -> ../q/sub"},
			"r",
			"p: a.yaml; r: *",
		},
		{
			"a config map",
			[]string{"r/..1/a.yaml", "r/..data -> ..1", "r/a.yaml -> ..data/a.yaml"},
			"r",
			"r: *; r/..1: a.yaml",
		},
		{
			"a file of one",
			[]string{"r/..1/a.yaml", "r/..data -> ..1", "r/a.yaml -> ..data/a.yaml"},
			"r/a.yaml",
			"r: ..data a.yaml; r/..1: a.yaml",
		},
	} {
		root := layFiles(t, c.entries...)
		var paths []string
		for p := range strings.FieldsSeq(c.paths) {
			paths = append(paths, filepath.Join(root, p))
		}
		if got := describePlaces(root, placesOf(paths)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestWatchPlacesThatDecide(t *testing.T) {
	p := places{"/r": nil, "/s": {"now": true}}
	for name, want := range map[string]bool{
		"/r": true, "/r/a.yaml": true, "/r/..data": true, "/s": true, "/s/now": true,
		"/s/other": false, "/r/sub/a.yaml": false, "/": false, "/t": false,
	} {
		if got := p.decidedBy(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
