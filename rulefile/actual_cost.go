package rulefile

import (
	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

var settleFields = strictyaml.Fields[ruleDecoder]{
	"header": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.Settle.Header, _ = d.headerName(n, "settle: header")
	},
	"json": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.Settle.JSON, _ = d.String(n, "settle: json")
	},
	"default": func(d *ruleDecoder, n *strictyaml.Node) {
		if amount, ok := d.Int(n, "settle: default", 0, sluice.MaxCost); ok {
			d.r.Settle.Default = &amount
		}
	},
	"hide": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.Settle.Hide, _ = d.Bool(n, "settle: hide")
	},
}

func (d *ruleDecoder) settle(n *strictyaml.Node) {
	d.r.Settle = &rules.Settle{At: d.at(n)}
	if before := d.Count(); !strictyaml.Decode(&d.Decoder, n, "settle", settleFields, nil, d) || d.Count() > before {
		d.r.Settle = nil // what else is wrong follows from it
	}
}
