package authn

import (
	"regexp"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// begins finds how a file of keys or users begins, also if it is no YAML.
var begins = regexp.MustCompile(`(?m)^(keys|users|rules|domain):`)

// kindOf is what a file lists, or nil.
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

// IsAccountFile reports whether a file lists keys or users, as distinct from rules. Its lines are not to be shown.
func IsAccountFile(data []byte) bool { return kindOf(data) != nil }

// Check finds the faults of a file that lists keys or users. The error joins all, each a [*rules.Error].
func Check(path string, data []byte) error {
	_, err := readAccounts(kindOf(data), []string{path}, [][]byte{data})
	return err
}
