package config

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// reader reads a value.
type reader = func(*decoder, *strictyaml.Node)

// key is a key of an entry: what [Setting] is to the file, for entries of lists and mappings. Its name may have sections:
// "health.path".
type key[T any] struct {
	Name, Type, Default, Doc string

	read func(to *T) reader
}

// readEntry reads an entry that is a mapping of keys, on top of their defaults.
func readEntry[T any](d *decoder, n *strictyaml.Node, what string, keys []key[T], to *T) bool {
	sound := d.Count()
	for i := range keys {
		if text := keys[i].Default; text != "" {
			root, _ := strictyaml.Parse([]byte(text))
			keys[i].read(to)(d, root)
		}
	}
	top := newSection()
	for i := range keys {
		top.add(keys[i].Name, keys[i].read(to))
	}
	d.expanded = true
	d.section(n, top, what)
	d.expanded = false
	return d.Count() == sound
}

// keyTable is the table of an entry's keys in Markdown.
func keyTable[T any](keys []key[T]) string {
	var b strings.Builder
	b.WriteString("| key | value | default | meaning |\n|---|---|---|---|\n")
	for _, k := range keys {
		text := "none"
		if k.Default != "" {
			text = "`" + k.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, k.Type, text, k.Doc)
	}
	return b.String()
}

// keySchema is the JSON Schema of an entry.
func keySchema[T any](keys []key[T]) map[string]any {
	top := object()
	for _, k := range keys {
		s := Setting{Name: k.Name, Type: k.Type, Default: k.Default, Doc: k.Doc}
		put(top, k.Name, s.schema())
	}
	return top
}

func prefixes(to func(*Config) *[]netip.Prefix) reader {
	return func(d *decoder, n *strictyaml.Node) {
		items, ok := d.entries(n)
		if !ok {
			return
		}
		var list []netip.Prefix
		for _, item := range items {
			p, err := match.ParsePrefix(item.Text)
			if err != nil {
				d.Fault(item, "%s: %v", d.name, err)
				continue
			}
			list = append(list, p)
		}
		*to(d.to) = list
	}
}
