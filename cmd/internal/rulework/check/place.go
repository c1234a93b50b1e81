package check

import (
	"path/filepath"
	"strings"

	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// placeInConfig returns the position in a configuration that an error of starting the service is about: that of the setting that
// the message begins with, else of the longest value in the message, such as a path, else of the section that the message begins
// with, else the start of the file.
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
		if len(parts) == 1 && n.Kind == strictyaml.Scalar {
			return at
		}
	}
	longest := 0
	var walk func(n *strictyaml.Node, isPath bool)
	walk = func(n *strictyaml.Node, isPath bool) {
		for _, f := range n.Fields {
			walk(f.Value, namesPath(f.Key.Text))
		}
		for _, item := range n.Items {
			walk(item, isPath)
		}
		if n.Kind != strictyaml.Scalar || n.Text == "" {
			return
		}
		path := strings.TrimPrefix(n.Text, "unix:")
		for _, text := range []string{path, filepath.Join(filepath.Dir(file), path)} {
			if (isPath || strings.ContainsRune(text, filepath.Separator)) && len(text) > longest && strings.Contains(msg, text) {
				longest, at = len(text), place(n)
			}
		}
	}
	walk(root, false)
	return at
}

// namesPath reports whether the values of a key are paths of files or directories.
func namesPath(key string) bool {
	return key == "file" || key == "files" || key == "paths" || key == "directory" || strings.HasSuffix(key, "_file") || strings.HasSuffix(key, "_dir")
}
