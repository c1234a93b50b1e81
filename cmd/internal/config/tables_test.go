package config

import (
	"fmt"
	"slices"
	"strings"
)

// Table returns the tables of all settings in Markdown, one per section.
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

// RouteTable returns the table of a route's keys in Markdown.
func RouteTable() string { return keyTable(new(Route).keys()) }

// UpstreamTable returns the table of an upstream's keys in Markdown.
func UpstreamTable() string { return keyTable(new(Upstream).keys()) }

// keyTable returns the table of an entry's keys in Markdown.
func keyTable(keys []Setting) string {
	table := "| key | value | default | meaning |\n|---|---|---|---|\n"
	for _, k := range keys {
		table += row(k)
	}
	return table
}

// row returns the row of a setting in a table.
func row(s Setting) string {
	text := "none"
	if s.Default != "" {
		text = "`" + s.Default + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", s.Name, s.Type, text, s.Doc)
}

// Renamed returns the old and new paths of renamed keys.
func Renamed() (all [][2]string) {
	for _, r := range renamed {
		all = append(all, [2]string{r.old, r.new})
	}
	return all
}

// KeyPaths returns the paths of all keys, those of upstreams, routes and certificates included.
func KeyPaths() (paths []string) {
	for _, s := range Settings() {
		paths = append(paths, s.Name)
	}
	for prefix, keys := range map[string][]Setting{
		"gateway.upstreams.*": new(Upstream).keys(), "gateway.routes": new(Route).keys(), "listeners.gateway.certificates": new(KeyPair).keys(),
	} {
		for _, k := range keys {
			paths = append(paths, prefix+"."+k.Name)
		}
	}
	return paths
}

// Keys returns all keys, those of upstreams, routes and certificates included.
func Keys() []Setting {
	return slices.Concat(Settings(), new(Upstream).keys(), new(Route).keys(), new(KeyPair).keys())
}
