package config

import (
	"fmt"
	"strings"
)

// Table is the table of all settings in Markdown, a section after the other.
func Table() string {
	var b strings.Builder
	last := ""
	for _, s := range Settings() {
		if top, _, _ := strings.Cut(s.Name, "."); top != last {
			if last != "" {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "### %s\n\n| setting | value | default | meaning |\n|---|---|---|---|\n", top)
			last = top
		}
		b.WriteString(row(s))
	}
	return b.String()
}

// RouteTable is the table of a route's keys in Markdown.
func RouteTable() string { return keyTable(new(Route).keys()) }

// UpstreamTable is the table of an upstream's keys in Markdown.
func UpstreamTable() string { return keyTable(new(Upstream).keys()) }

// keyTable is the table of an entry's keys in Markdown.
func keyTable(keys []Setting) string {
	table := "| key | value | default | meaning |\n|---|---|---|---|\n"
	for _, k := range keys {
		table += row(k)
	}
	return table
}

// row is that of a setting in a table.
func row(s Setting) string {
	text := "none"
	if s.Default != "" {
		text = "`" + s.Default + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", s.Name, s.Type, text, s.Doc)
}
