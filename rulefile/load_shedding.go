package rulefile

import (
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// priorityDecoder reads an entry of priorities.
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

// inMatch is the advice for keys of match that are written next to match.
var inMatch = map[string]string{
	"path": "move it into match: {path: /posts}", "method": "move it into match: {method: POST}",
	"host": "move it into match: {host: api.example.com}", "ip": "move it into match: {ip: 192.0.2.1}",
	"header": "move it into match: {header: {X-Plan: free}}",
}

func (f *file) priorities(n *strictyaml.Node) {
	f.entries(n, "priorities", func(item *strictyaml.Node) {
		d := &priorityDecoder{file: f, p: rules.PriorityRule{Pos: f.at(item)}}
		if strictyaml.Decode(&f.Decoder, item, "priorities", priorityFields, inMatch, d) {
			if item.Lacks("match") || item.Lacks("priority") {
				f.Fault(item, "priorities: an entry needs match and priority: {match: {path: /reports/**}, priority: low}")
			}
		}
		if f.flush("") && !emptied(d.p.Match, item.Field("match")) || len(d.p.Match.Predicates) > 0 {
			f.cfg.Priorities = append(f.cfg.Priorities, d.p)
		}
	})
}

// adaptiveLimitDecoder reads an entry of load_shedding.
type adaptiveLimitDecoder struct {
	*file
	g rules.AdaptiveLimit
}

var adaptiveLimitFields = strictyaml.Fields[adaptiveLimitDecoder]{
	"name":  func(d *adaptiveLimitDecoder, n *strictyaml.Node) { d.g.Name, _ = d.String(n, "load_shedding: name") },
	"match": func(d *adaptiveLimitDecoder, n *strictyaml.Node) { d.g.Match = d.match(n, "load_shedding: match") },
	"concurrency": func(d *adaptiveLimitDecoder, n *strictyaml.Node) {
		strictyaml.Decode(&d.Decoder, n, "load_shedding: concurrency", concurrencyFields, nil, d)
	},
	"shadow": func(d *adaptiveLimitDecoder, n *strictyaml.Node) { d.g.Shadow, _ = d.Bool(n, "load_shedding: shadow") },
}

// maxInFlight is a bound that no service reaches.
const maxInFlight = 1_000_000

var concurrencyFields = strictyaml.Fields[adaptiveLimitDecoder]{
	"min": func(d *adaptiveLimitDecoder, n *strictyaml.Node) {
		least, _ := d.Int(n, "load_shedding: concurrency: min", 1, maxInFlight)
		d.g.Min = int(least)
	},
	"max": func(d *adaptiveLimitDecoder, n *strictyaml.Node) {
		most, _ := d.Int(n, "load_shedding: concurrency: max", 1, maxInFlight)
		d.g.Max = int(most)
	},
}

var adaptiveLimitMoved = map[string]string{
	"path": inMatch["path"], "method": inMatch["method"], "host": inMatch["host"], "ip": inMatch["ip"], "header": inMatch["header"],
	"min": "move it into concurrency: {min: 10, max: 500}", "max": "move it into concurrency: {min: 10, max: 500}",
	"limit":    "the limit adapts; bound it with concurrency: {min: 10, max: 500}",
	"priority": "write priorities: at the top of the file",
}

func (f *file) loadShedding(n *strictyaml.Node) {
	f.entries(n, "load_shedding", func(item *strictyaml.Node) {
		d := &adaptiveLimitDecoder{file: f, g: rules.AdaptiveLimit{Pos: f.at(item)}}
		if strictyaml.Decode(&f.Decoder, item, "load_shedding", adaptiveLimitFields, adaptiveLimitMoved, d) && item.Lacks("name") {
			f.Fault(item, "load_shedding: the entry has no name: add one, such as name: api")
		}
		if !f.flush("") || !item.Whole() {
			d.g.Min, d.g.Max = 0, 0
		}
		if d.g.Name != "" {
			f.cfg.AdaptiveLimits = append(f.cfg.AdaptiveLimits, d.g)
		}
	})
}
