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

// NewDescriptors returns a request with these descriptors, each with the given cost, or 1.
func NewDescriptors(domain string, each [][]rules.Entry, cost int64) *Descriptors {
	d := &Descriptors{Domain: domain}
	for _, entries := range each {
		d.Each = append(d.Each, rules.Descriptor{Entries: entries, Cost: max(1, cost)})
	}
	return d
}

// String returns "auth: auth_type=login", descriptors separated by plus signs.
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
