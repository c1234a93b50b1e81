package rulefile

import (
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// priorityDecoder is an entry of priorities while it is read.
type priorityDecoder struct {
	*file
	p rules.PriorityRule
}

var priorityFields = strictyaml.Fields[priorityDecoder]{
	"match": func(d *priorityDecoder, n *strictyaml.Node) { d.p.Match = d.match(n, "priorities: match") },
	"priority": func(d *priorityDecoder, n *strictyaml.Node) {
		i, _ := d.OneOf(n, "priorities: priority", "low", "normal", "high", "critical")
		d.p.Priority = [...]rules.Priority{rules.PriorityLow, rules.PriorityNormal, rules.PriorityHigh, rules.PriorityCritical}[i]
	},
}

// inMatch is for keys that somebody wrote beside match.
var inMatch = map[string]string{
	"path": "it belongs to match: write match: {path: /posts}", "method": "it belongs to match: write match: {method: POST}",
	"host": "it belongs to match: write match: {host: api.example.com}", "ip": "it belongs to match: write match: {ip: 192.0.2.1}",
	"header": "it belongs to match: write match: {header: {X-Plan: free}}",
}

func (f *file) priorities(n *strictyaml.Node) {
	f.entries(n, "priorities", func(item *strictyaml.Node) {
		d := &priorityDecoder{file: f, p: rules.PriorityRule{Pos: f.at(item)}}
		if strictyaml.Decode(&f.Decoder, item, "priorities", priorityFields, inMatch, d) {
			if item.Lacks("match") || item.Lacks("priority") {
				f.Fault(item, "priorities: an entry has a match and a priority: {match: {path: /reports/**}, priority: low}")
			}
		}
		if f.flush("") && !emptied(d.p.Match, item.Field("match")) || len(d.p.Match.Predicates) > 0 {
			f.cfg.Priorities = append(f.cfg.Priorities, d.p)
		}
	})
}

// adaptiveLimitDecoder is an entry of shed while it is read.
type adaptiveLimitDecoder struct {
	*file
	g rules.AdaptiveLimit
}

var adaptiveLimitFields = strictyaml.Fields[adaptiveLimitDecoder]{
	"name":  func(d *adaptiveLimitDecoder, n *strictyaml.Node) { d.g.Name, _ = d.String(n, "shed: name") },
	"match": func(d *adaptiveLimitDecoder, n *strictyaml.Node) { d.g.Match = d.match(n, "shed: match") },
	"in_flight": func(d *adaptiveLimitDecoder, n *strictyaml.Node) {
		strictyaml.Decode(&d.Decoder, n, "shed: in_flight", inFlightFields, nil, d)
	},
	"shadow": func(d *adaptiveLimitDecoder, n *strictyaml.Node) { d.g.Shadow, _ = d.Bool(n, "shed: shadow") },
}

// maxInFlight is more than anybody has.
const maxInFlight = 1_000_000

var inFlightFields = strictyaml.Fields[adaptiveLimitDecoder]{
	"min": func(d *adaptiveLimitDecoder, n *strictyaml.Node) {
		least, _ := d.Int(n, "shed: in_flight: min", 1, maxInFlight)
		d.g.Min = int(least)
	},
	"max": func(d *adaptiveLimitDecoder, n *strictyaml.Node) {
		most, _ := d.Int(n, "shed: in_flight: max", 1, maxInFlight)
		d.g.Max = int(most)
	},
}

var adaptiveLimitMoved = map[string]string{
	"path": inMatch["path"], "method": inMatch["method"], "host": inMatch["host"], "ip": inMatch["ip"], "header": inMatch["header"],
	"min": "it belongs to in_flight: write in_flight: {min: 10, max: 500}", "max": "it belongs to in_flight: write in_flight: {min: 10, max: 500}",
	"limit":    "how many may be in flight is learnt; bound it with in_flight: {min: 10, max: 500}",
	"priority": "who goes first stands under priorities, at the top of the file",
}

func (f *file) loadShedding(n *strictyaml.Node) {
	f.entries(n, "shed", func(item *strictyaml.Node) {
		d := &adaptiveLimitDecoder{file: f, g: rules.AdaptiveLimit{Pos: f.at(item)}}
		if strictyaml.Decode(&f.Decoder, item, "shed", adaptiveLimitFields, adaptiveLimitMoved, d) && item.Lacks("name") {
			f.Fault(item, "shed: the entry has no name: add one that says what is protected, such as name: api")
		}
		if !f.flush("") || !item.Whole() {
			d.g.Min, d.g.Max = 0, 0
		}
		if d.g.Name != "" {
			f.cfg.AdaptiveLimits = append(f.cfg.AdaptiveLimits, d.g)
		}
	})
}
