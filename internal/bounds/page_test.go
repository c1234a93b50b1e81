package bounds

import (
	"fmt"
	"strings"
)

//go:generate go test -run TestPage . -update

// Markers in docs/bounds.md: go generate writes the text between them.
const (
	pageBegin = "<!-- generated from internal/bounds: begin -->\n"
	pageEnd   = "<!-- generated from internal/bounds: end -->\n"
)

// page returns the tables of docs/bounds.md, one for each group.
func page() string {
	var b strings.Builder
	group := ""
	for _, bound := range all {
		if bound.Group != group {
			group = bound.Group
			fmt.Fprintf(&b, "\n### %s\n\n| bound | default | setting | effect when reached | metric |\n|---|---|---|---|---|\n", group)
		}
		setting := "fixed"
		if bound.Setting != "" {
			setting = "`" + bound.Setting + "`"
		}
		metric := "`" + Metric + "`"
		switch bound.Elsewhere {
		case "":
		case Library:
			metric = "not counted"
		default:
			metric = "`" + bound.Elsewhere + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", bound.Name, bound.Default, setting, bound.Result, metric)
	}
	return b.String() + "\n"
}
