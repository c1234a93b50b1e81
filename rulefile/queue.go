package rulefile

import (
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

var queueFields = strictyaml.Fields[ruleDecoder]{
	"order": func(d *ruleDecoder, n *strictyaml.Node) {
		i, _ := d.OneOf(n, "queue: order", "none", "key")
		d.r.Queue.Ordered = i == 1
	},
	"keep": func(d *ruleDecoder, n *strictyaml.Node) {
		items, _ := d.Strings(n, "queue: keep")
		for _, item := range items {
			if item.Kind != strictyaml.Scalar {
				continue // reported
			}
			if name, ok := d.headerName(item, "queue: keep"); ok {
				d.r.Queue.KeepHeaders = append(d.r.Queue.KeepHeaders, name)
			}
		}
	},
	"attempts": func(d *ruleDecoder, n *strictyaml.Node) {
		attempts, _ := d.Int(n, "queue: attempts", 1, rules.MaxDeliveryAttempts)
		d.r.Queue.MaxAttempts = int(attempts)
	},
	"expires": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.Queue.ExpiresAfter, _ = d.Duration(n, "queue: expires")
	},
	"results": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.Queue.ResultTTL, _ = d.Duration(n, "queue: results")
	},
}

func (d *ruleDecoder) queue(n *strictyaml.Node) {
	d.r.Queue = rules.QueueOptions{Pos: d.at(n)}
	strictyaml.Decode(&d.Decoder, n, "queue", queueFields, nil, d)
}
