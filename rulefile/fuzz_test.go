package rulefile_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/rulefile"
)

// FuzzNative reads any text as a file next to one with common declarations.
func FuzzNative(f *testing.F) {
	addSeeds(f, "testdata/*native.txt", "testdata/*merge.txt", "testdata/*yaml.txt")
	other := rulefile.File{Name: "other.yaml", Data: []byte(
		"attributes: {customer: jwt:customer}\nlists: {ways: [/a]}\nrules: [{name: other, limit: 1/s}]\n")}
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzz(t, testCase{sources: []rulefile.File{{Name: "rules.yaml", Data: data}, other}})
	})
}

// FuzzEnvoy reads any text as a part of a domain.
func FuzzEnvoy(f *testing.F) {
	addSeeds(f, "testdata/*envoy.txt")
	other := rulefile.File{Name: "other.yaml", Data: []byte("domain: d\ndescriptors: [{key: a}]\n")}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := testCase{name: "(merge)", sources: []rulefile.File{other, {Name: "rules.yaml", Data: data}}}
		if !strings.Contains(string(data), "domain") {
			c.sources[1].Data = append([]byte("domain: d\n"), data...)
		}
		fuzz(t, c)
	})
}

func addSeeds(f *testing.F, patterns ...string) {
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, name := range names {
			for _, c := range readTranscript(f, name) {
				for _, s := range c.sources {
					f.Add(s.Data)
				}
			}
		}
	}
}

// fuzz checks that files are either rejected, with a position for every error, or yield valid rules, and the same each
// time.
func fuzz(t *testing.T, c testCase) {
	_, err := c.read()
	if err != nil {
		checkFaults(t, "fuzz", err)
	}
	_, again := c.read()
	if (err == nil) != (again == nil) || err != nil && err.Error() != again.Error() {
		t.Errorf("first %v, then %v", err, again)
	}
}
