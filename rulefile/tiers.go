package rulefile

import (
	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// tierBy is the one key of tiers that is not the name of a tier.
const tierBy = "by"

func (d *ruleDecoder) readTiers(context limitContext) {
	n := d.tiers
	if !d.IsMapping(n, "tiers") {
		return
	}
	tiers := &rules.Tiers{Pos: d.at(n), Limits: make(map[string][]rules.Limit)}
	for _, field := range n.Fields {
		if field.Key.Text == tierBy {
			tiers.By, _ = d.ref(field.Value, "tiers: by")
			continue
		}
		context.what = "tiers: " + field.Key.Text
		if limits := context.limits(field.Value); len(limits) > 0 {
			tiers.Limits[field.Key.Text] = limits
		}
	}
	switch {
	case n.Lacks(tierBy):
		d.Fault(n, "tiers: there is no by: write the attribute, as in {by: plan, free: 10/min}")
	case len(n.Fields) <= 1 && n.Whole():
		d.Fault(n, "tiers: there are no limits: write one for each value of %s, as in {by: plan, free: 10/min}", tiers.By.Name)
	}
	if tiers.By.Name != "" {
		d.r.Tiers = tiers
	}
}

type overrideDecoder struct {
	*file
	context limitContext
	o       rules.Override
}

var overrideFields = strictyaml.Fields[overrideDecoder]{
	"key": func(d *overrideDecoder, n *strictyaml.Node) {
		items, ok := d.Strings(n, "overrides: key")
		if ok && len(items) == 0 {
			d.Fault(n, "overrides: key: the list is empty: write a value for each attribute of per")
		}
		for _, item := range items {
			d.o.Key = append(d.o.Key, item.Text)
		}
	},
	"limit":  (*overrideDecoder).limit,
	"limits": (*overrideDecoder).limit,
}

func (d *overrideDecoder) limit(n *strictyaml.Node) {
	if d.o.Limits != nil {
		d.Fault(n, "overrides: limit and limits are the same key: keep one")
	}
	d.o.Limits = d.context.limits(n)
}

// readOverrides reads a mapping by the values of one attribute, or a list of keys with several values.
func (d *ruleDecoder) readOverrides(context limitContext) {
	n := d.overrides
	switch n.Kind {
	case strictyaml.Mapping:
		if len(d.r.Per) > 1 {
			d.Fault(n, "overrides: the rule counts per %d attributes, so a key needs as many values: write a list, "+
				"[{key: [a, b], limit: 100/s}]", len(d.r.Per))
			return
		}
		for _, field := range n.Fields {
			context.what = "overrides: " + field.Key.Text
			if limits := context.limits(field.Value); len(limits) > 0 {
				d.r.Overrides = append(d.r.Overrides, rules.Override{Pos: d.at(field.Key), Key: []string{field.Key.Text}, Limits: limits})
			}
		}
	case strictyaml.Sequence:
		context.what = "overrides: limit"
		for _, item := range n.Items {
			o := &overrideDecoder{file: d.file, context: context, o: rules.Override{Pos: d.at(item)}}
			before := d.Count()
			if !strictyaml.Decode(&d.Decoder, item, "overrides", overrideFields, nil, o) {
				continue
			}
			if item.Lacks("key") || item.Lacks("limit") && item.Lacks("limits") {
				d.Fault(item, "overrides: an entry needs key and limit: {key: [ada, 192.0.2.1], limit: 100/s}")
			}
			if d.Count() == before && len(o.o.Key) > 0 && len(o.o.Limits) > 0 {
				d.r.Overrides = append(d.r.Overrides, o.o)
			}
		}
	default:
		d.Fault(n, "overrides: is %s: write the limit of each key, as in {ada: 100/s, mallory: deny}", n)
	}
}

type costDecoder struct {
	*file
	cost    rules.Cost
	sources int
}

// costFields are the sources of a cost, its default and its maximum.
var costFields = strictyaml.Fields[costDecoder]{
	"header": func(d *costDecoder, n *strictyaml.Node) {
		if name, ok := d.headerName(n, "cost: header"); ok {
			d.from(n, "header:"+name)
		}
	},
	"query":  costSource("query"),
	"cookie": costSource("cookie"),
	"claim":  costSource("claim"),
	"jwt":    costSource("jwt"),
	"attr":   costSource("attr"),
	"attribute": func(d *costDecoder, n *strictyaml.Node) {
		if ref, ok := d.ref(n, "cost: attribute"); ok {
			d.from(n, ref.Name)
		}
	},
	"default": func(d *costDecoder, n *strictyaml.Node) {
		d.cost.Default, _ = d.Int(n, "cost: default", 1, sluice.MaxCost)
	},
	"max": func(d *costDecoder, n *strictyaml.Node) {
		d.cost.Max, _ = d.Int(n, "cost: max", 1, sluice.MaxCost)
	},
}

func costSource(word string) func(*costDecoder, *strictyaml.Node) {
	return func(d *costDecoder, n *strictyaml.Node) {
		if name, ok := d.String(n, "cost: "+word); ok {
			d.from(n, namedKinds[word]+":"+name)
		}
	}
}

func (d *costDecoder) from(n *strictyaml.Node, ref string) {
	d.sources++
	d.cost.From = &rules.Ref{Pos: d.at(n), Name: ref}
}

func (d *ruleDecoder) cost(n *strictyaml.Node) {
	c := &costDecoder{file: d.file, cost: rules.Cost{Pos: d.at(n)}}
	switch n.Kind {
	case strictyaml.Mapping:
		before := d.Count()
		strictyaml.Decode(&d.Decoder, n, "cost", costFields, nil, c)
		if d.Count() == before && c.sources != 1 && n.Whole() {
			d.Fault(n, "cost: has %d sources: write exactly one, as in {header: X-Cost, default: 1}", c.sources)
		}
	case strictyaml.Scalar:
		if n.Type != strictyaml.Int {
			d.Fault(n, "cost: is %s: write a number or a source, as in {header: X-Cost, default: 1, max: 100}", n)
			return
		}
		c.cost.Default, _ = d.Int(n, "cost", 1, sluice.MaxCost)
	default:
		d.Fault(n, "cost: is %s: write a number or a source, as in {header: X-Cost, default: 1, max: 100}", n)
	}
	d.r.Cost = c.cost
}
