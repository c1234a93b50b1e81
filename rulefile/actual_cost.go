package rulefile

import (
	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

var actualCostFields = strictyaml.Fields[ruleDecoder]{
	"header": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.ActualCost.Header, _ = d.headerName(n, "settle: header")
	},
	"json": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.ActualCost.JSON, _ = d.String(n, "settle: json")
	},
	"default": func(d *ruleDecoder, n *strictyaml.Node) {
		if amount, ok := d.Int(n, "settle: default", 0, sluice.MaxCost); ok {
			d.r.ActualCost.Default = &amount
		}
	},
	"hide": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.ActualCost.StripHeader, _ = d.Bool(n, "settle: hide")
	},
}

func (d *ruleDecoder) actualCost(n *strictyaml.Node) {
	d.r.ActualCost = &rules.ActualCost{Pos: d.at(n)}
	if before := d.Count(); !strictyaml.Decode(&d.Decoder, n, "settle", actualCostFields, nil, d) || d.Count() > before {
		d.r.ActualCost = nil // what else is wrong follows from it
	}
}
