package rulefile_test

import (
	"bytes"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/rulefile"
)

// Formatting an accepted file again changes nothing, and the meaning stays the same.
func FuzzFormat(f *testing.F) {
	for _, seed := range formatSeeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		once, err := rulefile.Format("x.yaml", src)
		if err != nil {
			return
		}
		twice, err := rulefile.Format("x.yaml", once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%v\n%q\nonce\n%s\ntwice\n%s", err, src, once, twice)
		}
		var before, after any
		if err := yaml.Unmarshal(src, &before); err != nil {
			return // a reference to something inside itself
		}
		if err := yaml.Unmarshal(once, &after); err != nil {
			t.Fatalf("%v: %q became %q", err, src, once)
		}
		a, _ := yaml.Marshal(before)
		b, _ := yaml.Marshal(after)
		if !bytes.Equal(a, b) {
			t.Fatalf("%q became %q", src, once)
		}
	})
}
