package describe

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/examples"
	"github.com/sluiceproject/sluice/rules"
)

// Page is the documentation of limits for users of an API. Its fields are stable for programs.
type Page struct {
	Title    string              `json:"title"`
	Tiers    []string            `json:"tiers"` // columns, from the strictest to the most generous
	Limits   []publicLimit       `json:"limits"`
	Headers  []publicHeader      `json:"headers"`
	Examples []examples.Response `json:"-"` // the first of each kind among those of the limits

	Intro  []string `json:"-"` // responses to requests over a limit, one paragraph each
	Advice []string `json:"-"` // for the author, not for the page
}

type publicLimit struct {
	Name        string              `json:"name"` // as headers have it
	Description string              `json:"what"`
	Requests    string              `json:"requests"`
	CountedPer  string              `json:"who"`
	Limit       string              `json:"limit"`
	Tiers       []string            `json:"tiers"` // one for each of the page's tiers; empty: the limit
	Notes       []string            `json:"notes"`
	Examples    []examples.Response `json:"examples"` // one for each outcome that a request over the limit can have
}

// NewPage returns the page about the public rules.
func NewPage(set *rules.Set, title string) *Page {
	d := &Page{Title: title, Tiers: []string{}, Limits: []publicLimit{}, Headers: slices.Clone(publicHeaders)}
	cfg := set.Config()
	var public []*rules.Rule
	for i := range cfg.Rules {
		if r := &cfg.Rules[i]; !r.Hidden && !r.Disabled && !r.Shadow {
			public = append(public, r)
		}
	}
	columns := tierColumns(public)
	for _, column := range columns {
		d.Tiers = append(d.Tiers, column.title)
	}
	d.Intro = denialIntro(public)
	for _, r := range public {
		d.add(r, columns)
	}
	if len(cfg.Domains) > 0 {
		d.Advice = append(d.Advice, "the page omits the limits of Envoy domains, because users of an API do not see descriptors")
	}
	d.addExamples(set, public)
	d.nameStatuses(public)
	return d
}

func (d *Page) add(r *rules.Rule, columns []tierColumn) {
	l := publicLimit{
		Name: r.Name, Description: r.Description, Requests: requestText(&r.Match), CountedPer: perText(r),
		Limit: limitsText(r.Limits, r), Tiers: make([]string, len(columns)), Notes: append([]string{}, notesText(r)...),
		Examples: []examples.Response{},
	}
	for i, column := range columns {
		if r.Tiers != nil && r.Tiers.By.Name == column.by {
			if limits, ok := r.Tiers.Limits[column.value]; ok {
				l.Tiers[i] = limitsText(limits, r)
			}
		}
	}
	if l.Description == "" {
		l.Description = r.Name
		if len(otherRefs(r)) > 0 {
			d.Advice = append(d.Advice,
				fmt.Sprintf("%v: rule %s has conditions that the page does not show: add a description to the rule", r.Pos, r.Name))
		}
	}
	d.Limits = append(d.Limits, l)
}

// tierColumn is a column for one value of an attribute that chooses tiers.
type tierColumn struct {
	by, value, title string
	rate             float64 // in the first rule with the tier
}

// tierColumns returns the tiers of all rules, those of one attribute together and ordered by generosity, which is the
// usual order of plans. The order in the file is unknown.
func tierColumns(list []*rules.Rule) []tierColumn {
	var columns []tierColumn
	attributes := make(map[string]int)
	for _, r := range list {
		if r.Tiers == nil {
			continue
		}
		by := r.Tiers.By.Name
		if _, known := attributes[by]; !known {
			attributes[by] = len(attributes)
		}
		for _, value := range slices.Sorted(maps.Keys(r.Tiers.Limits)) {
			same := func(c tierColumn) bool { return c.by == by && c.value == value }
			if !slices.ContainsFunc(columns, same) {
				columns = append(columns, tierColumn{by: by, value: value, rate: generosity(r.Tiers.Limits[value])})
			}
		}
	}
	slices.SortStableFunc(columns, func(a, b tierColumn) int {
		return cmp.Or(cmp.Compare(attributes[a.by], attributes[b.by]), cmp.Compare(a.rate, b.rate))
	})
	for i := range columns {
		columns[i].title = columns[i].by + " " + columns[i].value
	}
	return columns
}

// generosity returns the highest rate of some limits, with which plans are advertised.
func generosity(list []rules.Limit) float64 {
	most := 0.0
	for i := range list {
		switch l := &list[i]; {
		case l.Unlimited:
			return math.Inf(1)
		case l.DenyAll:
			return 0
		case l.Limit.Algorithm == sluice.Concurrency:
			most = max(most, float64(l.Limit.Count))
		case l.Limit.Window > 0:
			most = max(most, l.Limit.Rate())
		}
	}
	return most
}
