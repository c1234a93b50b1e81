package sample

import (
	"strings"

	"github.com/sluiceproject/sluice/rules"
)

// Descriptors is a request to an Envoy domain.
type Descriptors struct {
	Domain string
	Each   []rules.Descriptor
}

// String writes "auth: auth_type=login", descriptors separated by plus signs.
func (d *Descriptors) String() string {
	var each []string
	for i := range d.Each {
		var entries []string
		for _, e := range d.Each[i].Entries {
			entries = append(entries, e.Key+"="+e.Value)
		}
		each = append(each, strings.Join(entries, " "))
	}
	return d.Domain + ": " + strings.Join(each, " + ")
}
