package check

import (
	"path/filepath"
	"strings"

	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// placeInConfig returns where a configuration has what an error of starting the service is about: the longest value that
// the message has in it, such as a path, else the setting or section that it begins with, else the beginning of the file.
func placeInConfig(file string, data []byte, msg string) rules.Position {
	root, _ := strictyaml.Parse(data)
	at := rules.Position{File: file, Line: 1, Column: 1}
	if root == nil {
		return at
	}
	place := func(n *strictyaml.Node) rules.Position {
		return rules.Position{File: file, Line: n.Line, Column: n.Column}
	}
	name, _, _ := strings.Cut(msg, ": ")
	for n, parts := root, strings.Split(name, "."); len(parts) > 0; parts = parts[1:] {
		if n = n.Field(parts[0]); n == nil {
			break
		}
		at = place(n)
	}
	longest := 0
	var walk func(n *strictyaml.Node)
	walk = func(n *strictyaml.Node) {
		for _, f := range n.Fields {
			walk(f.Value)
		}
		for _, item := range n.Items {
			walk(item)
		}
		if n.Kind != strictyaml.Scalar || n.Text == "" {
			return
		}
		path := strings.TrimPrefix(n.Text, "unix:")
		for _, text := range []string{path, filepath.Join(filepath.Dir(file), path)} {
			if isPath := strings.ContainsRune(text, filepath.Separator); isPath && len(text) > longest && strings.Contains(msg, text) {
				longest, at = len(text), place(n)
			}
		}
	}
	walk(root)
	return at
}
