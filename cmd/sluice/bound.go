package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// bound is how much a limit with accuracy: eventual may admit with a store that several processes share.
type bound struct {
	Limit     string  `json:"limit"`
	Most      int64   `json:"most"`              // if nothing is offered beyond it
	Staleness float64 `json:"staleness_seconds"` // what is offered in that time may be admitted too
	Example   struct {
		Offered float64 `json:"offered_per_second"` // twice the limit
		Most    int64   `json:"most"`
	} `json:"example"`
}

// ruleBounds are those of a rule's limits, without those of its tiers and overrides.
func ruleBounds(r *rules.Rule) []bound {
	if r.Accuracy != sluice.Eventual {
		return nil
	}
	staleness := sluice.Staleness(sluice.DefaultBudget).Seconds()
	var all []bound
	for i := range r.Limits {
		limit, err := r.Limits[i].Limit.Build()
		if err != nil || r.Limits[i].Unlimited || r.Limits[i].Never {
			continue
		}
		b := bound{Limit: limit.String(), Most: limit.Params().Limit(), Staleness: staleness}
		b.Example.Offered = 2 * limit.Rate()
		b.Example.Most = b.Most + int64(b.Example.Offered*staleness)
		all = append(all, b)
	}
	return all
}

func (r *checkReport) writeBounds(w io.Writer) {
	some := false
	for i := range r.Rules {
		for _, b := range r.Rules[i].Bounds {
			some = true
			fmt.Fprintf(w, "%s (accuracy: eventual) may admit up to %s + offered rate × %v s: %s if %s/s are offered\n", printable(r.Rules[i].Name),
				thousands(b.Most), b.Staleness, thousands(b.Example.Most), strconv.FormatFloat(b.Example.Offered, 'g', 4, 64))
		}
	}
	if some {
		fmt.Fprintln(w)
	}
}
