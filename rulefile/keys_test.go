package rulefile_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/rulefile"
)

// The keys are a promise to all users with rule files: testdata/keys.golden changes with care.
func TestKeysStayTheSame(t *testing.T) {
	var b strings.Builder
	keys := rulefile.Keys()
	for _, section := range slices.Sorted(maps.Keys(keys)) {
		if !slices.IsSorted(keys[section]) || len(keys[section]) == 0 {
			t.Errorf("%s: %q", section, keys[section])
		}
		fmt.Fprintf(&b, "%s: %s\n", section, strings.Join(keys[section], ", "))
	}
	const golden = "testdata/keys.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || b.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s\nerror %v", &b, want, err)
	}
}

// Every key is used in some valid file.
func TestKeysAreTested(t *testing.T) {
	names, err := filepath.Glob("testdata/good-*.txt")
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	word := regexp.MustCompile(`(\w+)"?:`)
	for _, name := range names {
		for _, c := range readTranscript(t, name) {
			for _, s := range c.sources {
				for _, m := range word.FindAllStringSubmatch(string(s.Data), -1) {
					used[m[1]] = true
				}
			}
		}
	}
	for section, keys := range rulefile.Keys() {
		for _, key := range keys {
			if !used[key] {
				t.Errorf("no good file has %s: %s", section, key)
			}
		}
	}
}
