package check_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/fileerrors"
)

// The kind of a file is recognized although it has an error, so that the error is about that kind.
func TestKindsOfFiles(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct{ text, want string }{
		"a_test.yaml":   {"rules: rules.yaml\ntests: []\n", `:2:1: this is a test file: run sluice test `},
		"sluice.yaml":   {"listener: {}\n", `:1:1: there is no key "listener": did you mean "listeners"?`},
		"mapping.yaml":  {"rules: {a: 5/min}\n", `:1:8: rules: is a mapping: write a list`},
		"misspelt.yaml": {"rules: {path: a.yaml}\n", `:1:9: rules: there is no key "path": did you mean "paths"?`},
		"wrong.yaml":    {"rule: []\n", `:1:1: there is no key "rule": did you mean "rules"?`},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		found := findings(t, file, nil)
		if len(found) != 1 || !strings.Contains(place(&found[0]), test.want) {
			t.Errorf("%s: got %+v, want %s", name, found, test.want)
		}
	}
}

func place(f *fileerrors.Diagnostic) string {
	return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message)
}
