package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Source is a configuration file and its content when the service read it.
type Source struct {
	path string
	data []byte
}

// LoadSource is like [Load] and also returns the source, which reports later changes of the file.
func LoadSource(path string) (Config, *Source, error) {
	data, err := readFile(path)
	if err != nil {
		return Config{}, nil, err
	}
	c, err := Read(path, data)
	return c, &Source{path, data}, err
}

// Changed returns the sorted names of settings whose text in the file differs from the text that the service read. The error is
// that of [Load] for the current file: a service would not start with it.
func (s *Source) Changed() ([]string, error) {
	data, err := readFile(s.path)
	if err == nil {
		_, err = Read(s.path, data)
	}
	if err != nil {
		return nil, err
	}
	before, now := writtenSettings(s.data), writtenSettings(data)
	changed := map[string]bool{}
	for _, all := range []map[string]string{before, now} {
		for name := range all {
			if before[name] != now[name] {
				changed[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(changed)), nil
}

// writtenSettings returns the values of the settings in a file by name, as text without comments and layout.
func writtenSettings(data []byte) map[string]string {
	known := map[string]bool{}
	for _, s := range Settings() {
		known[s.Name] = true
	}
	all := map[string]string{}
	var walk func(name string, n *strictyaml.Node)
	walk = func(name string, n *strictyaml.Node) {
		if known[name] || n.Kind != strictyaml.Mapping {
			all[name] = nodeText(n)
			return
		}
		for _, f := range n.Fields {
			walk(strings.TrimPrefix(name+"."+f.Key.Text, "."), f.Value)
		}
	}
	if root, faults := strictyaml.Parse(data); len(faults) == 0 {
		walk("", root)
	}
	return all
}

func nodeText(n *strictyaml.Node) string {
	var parts []string
	switch n.Kind {
	case strictyaml.Mapping:
		for _, f := range n.Fields {
			parts = append(parts, fmt.Sprintf("%q: %s", f.Key.Text, nodeText(f.Value)))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	case strictyaml.Sequence:
		for _, item := range n.Items {
			parts = append(parts, nodeText(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprintf("%q", n.Text)
}
