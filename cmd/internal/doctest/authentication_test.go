package doctest

import (
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
)

// TestAuthenticationDocs checks that the files that docs/authentication.md shows are valid: configuration files, rule files, key files and user files.
func TestAuthenticationDocs(t *testing.T) {
	kinds := map[string]int{}
	for _, b := range blocks(t, "docs/authentication.md", "yaml") {
		name, _, _ := strings.Cut(strings.TrimPrefix(b.text, "# "), "\n")
		kinds[name]++
		var err error
		switch name {
		case "sluice.yaml":
			_, err = config.Parse(name, []byte(b.text), func(string) (string, bool) { return "", false })
		case "rules.yaml":
			err = readShown(b.text)
		case "keys.yaml", "users.yaml":
			if !authn.IsAccountFile([]byte(b.text)) {
				t.Errorf("%s:%d: not recognized as a key file or user file", b.doc, b.line)
				continue
			}
			err = authn.Check(name, []byte(b.text))
		default:
			t.Errorf("%s:%d: unknown kind of file %q", b.doc, b.line, name)
		}
		if err != nil {
			t.Errorf("%s:%d: %v", b.doc, b.line, err)
		}
	}
	if kinds["sluice.yaml"] != 1 || kinds["rules.yaml"] != 1 || kinds["keys.yaml"] != 1 || kinds["users.yaml"] != 1 {
		t.Errorf("docs/authentication.md shows only %v", kinds)
	}
}
