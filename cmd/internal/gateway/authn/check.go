package authn

import (
	"regexp"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// begins matches the first key of an account or rule file, even if the file is invalid YAML.
var begins = regexp.MustCompile(`(?m)^(keys|users|rules|domain):`)

// kindOf returns the kind of an account file, or nil for other files.
func kindOf(data []byte) *kind {
	list := ""
	if root, faults := strictyaml.Parse(data); len(faults) == 0 {
		if root.Kind == strictyaml.Mapping && len(root.Fields) > 0 {
			list = root.Fields[0].Key.Text
		}
	} else if m := begins.FindSubmatch(data); m != nil {
		list = string(m[1])
	}
	for _, k := range []*kind{&keyKind, &userKind} {
		if k.list == list {
			return k
		}
	}
	return nil
}

// IsAccountFile reports whether a file lists keys or users. Its lines must not be shown, because they may contain secrets.
func IsAccountFile(data []byte) bool { return kindOf(data) != nil }

// Check checks an account file. Its error joins all errors, each a [*rules.Error].
func Check(path string, data []byte) error {
	_, err := readAccounts(kindOf(data), []string{path}, [][]byte{data})
	return err
}
