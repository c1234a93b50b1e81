package config

import (
	"net/netip"

	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// readEntry reads an entry of a list or mapping with its own keys, starting from their defaults. It reports whether the entry
// has no errors.
func readEntry(d *decoder, n *strictyaml.Node, what string, keys []Setting) bool {
	sound := d.Count()
	d.readDefaults(keys)
	d.expanded = true
	d.section(n, sections(keys), what)
	d.expanded = false
	return d.Count() == sound
}

// keySchema returns the JSON Schema of an entry.
func keySchema(keys []Setting, required ...string) shape {
	top := object()
	top["required"] = required
	for _, k := range keys {
		put(top, k.Name, k.schema())
	}
	constrain(top, entrySections)
	return top
}

func prefixes(to *[]netip.Prefix) value {
	return value{"list of addresses and prefixes", func(d *decoder, n *strictyaml.Node) {
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
		*to = list
	}, listOf(shape{"type": "string", "pattern": `^[0-9a-fA-F:.]+(/[0-9]{1,3})?$`})}
}
