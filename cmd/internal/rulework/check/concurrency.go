package check

import (
	"fmt"
	"io"
	"slices"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rules"
)

// limitsConcurrency reports whether the rule has a concurrency limit.
func limitsConcurrency(r *rules.Rule) bool {
	on := func(l rules.Limit) bool { return l.Limit.Algorithm == sluice.Concurrency }
	if slices.ContainsFunc(r.Limits, on) {
		return true
	}
	if r.Tiers != nil {
		for _, list := range r.Tiers.Limits {
			if slices.ContainsFunc(list, on) {
				return true
			}
		}
	}
	return slices.ContainsFunc(r.Overrides, func(o rules.Override) bool { return slices.ContainsFunc(o.Limits, on) })
}

func (r *Report) writeConcurrency(w io.Writer) {
	some := false
	for i := range r.Rules {
		if r.Rules[i].Concurrency {
			some = true
			fmt.Fprintf(w, "%s (concurrent) applies only in middleware and the gateway, which see the end of a request: forward auth, "+
				"the check API and RESP ignore it\n", term.Printable(r.Rules[i].Name))
		}
	}
	if some {
		fmt.Fprintln(w)
	}
}
