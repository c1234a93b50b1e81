package match

import (
	"strings"
	"testing"
)

// A rule also applies to names with dots and spaces at their ends, because some servers ignore these.
func TestLooseEnds(t *testing.T) {
	var table Table
	for i, text := range []string{"/admin/**", "/files/*", "/wiki/{name}"} {
		p, err := ParsePattern(text, false)
		if err != nil {
			t.Fatal(err)
		}
		table.Add(p, i)
	}
	for sent, want := range map[string]int{
		"/admin": 0, "/admin.": 0, "/admin%20": 0, "/admin...": 0, "/%20admin": 0, "/admin%20./users": 0, "/x/../admin./": 0,
		"/admin/users.": 0, "/adminx.": -1, "/.admin": -1, "/ad.min": -1, "/admin.x": -1,
		"/files/a.": 1, "/files./a": 1, "/wiki/Apple_Inc.": 2, "/wiki/%20x": 2,
	} {
		path, err := CanonicalPath(sent)
		if err != nil {
			t.Errorf("%s: %v", sent, err)
		} else if got := table.First(path); got != want {
			t.Errorf("%s: pattern %d, want %d", sent, got, want)
		}
	}
	for _, pattern := range []string{"/admin.", "/admin /x", "/ admin", "/a*."} {
		if _, err := ParsePattern(pattern, false); err == nil || !strings.Contains(err.Error(), "write \"") {
			t.Errorf("%s: %v, want an error that says what to write", pattern, err)
		}
	}
}

func FuzzLoosePath(f *testing.F) {
	for _, path := range []string{"/", "/a./b .", "/ a", "/a.b/c"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		path, err := CanonicalPath(sent)
		if err != nil {
			return
		}
		got := LoosePath(path)
		// By definition: each name without dots and spaces at its end and spaces at its start.
		names := strings.Split(path, "/")
		for i, name := range names {
			for strings.HasSuffix(name, ".") || strings.HasSuffix(name, " ") {
				name = name[:len(name)-1]
			}
			for strings.HasPrefix(name, " ") {
				name = name[1:]
			}
			if name == "" && path != "/" && i > 0 {
				t.Fatalf("%q: name %d is empty", path, i)
			}
			names[i] = name
		}
		if want := strings.Join(names, "/"); got != want {
			t.Fatalf("%q: %q, want %q", path, got, want)
		}
	})
}
