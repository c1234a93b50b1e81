package rulefile

import (
	"math"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/internal/suggest"
	"github.com/sluiceproject/sluice/rules"
)

// envoyUnits maps Envoy's units to their lengths. Its months and years do not follow the calendar.
var envoyUnits = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
	"month": 30 * 24 * time.Hour, "year": 365 * 24 * time.Hour,
}

var envoyUnitNames = []string{"second", "minute", "hour", "day", "week", "month", "year"}

// rateLimitDecoder reads one rate_limit.
type rateLimitDecoder struct {
	*descriptorDecoder
	limit        rules.Limit
	unit, window *strictyaml.Node
	multiplier   int64
	unlimited    bool
	uncertain    bool // unlimited has an error, so that the unit may be missing
}

var rateLimitFields = strictyaml.Fields[rateLimitDecoder]{
	"unit":              func(d *rateLimitDecoder, n *strictyaml.Node) { d.unit = n },
	"requests_per_unit": (*rateLimitDecoder).requestsPerUnit,
	"unlimited": func(d *rateLimitDecoder, n *strictyaml.Node) {
		before := d.Count()
		d.unlimited = d.flag(n, "unlimited")
		d.uncertain = d.Count() > before
	},
	"name":     func(d *rateLimitDecoder, n *strictyaml.Node) { d.limit.Name = d.text(n, "name") },
	"replaces": (*rateLimitDecoder).replaces,
	"algorithm": func(d *rateLimitDecoder, n *strictyaml.Node) {
		d.limit.Limit.Algorithm, _ = d.readAlgorithm(n, "algorithm")
	},
	"burst": func(d *rateLimitDecoder, n *strictyaml.Node) {
		d.limit.Limit.Burst, _ = d.Int(n, "burst", 1, math.MaxUint32)
	},
	"window": func(d *rateLimitDecoder, n *strictyaml.Node) { d.window = n },
	"unit_multiplier": func(d *rateLimitDecoder, n *strictyaml.Node) {
		if times, ok := d.Int(n, "unit_multiplier", 1, 366*24*3600); ok {
			d.multiplier = times
		}
	},
	"on_failure": func(d *rateLimitDecoder, n *strictyaml.Node) { d.limit.OnFailure = readFailMode(&d.Decoder, n) },
	"accuracy":   func(d *rateLimitDecoder, n *strictyaml.Node) { d.limit.Accuracy = readAccuracy(&d.Decoder, n) },
	"charge": func(d *rateLimitDecoder, n *strictyaml.Node) {
		i, _ := d.OneOf(n, "charge", "allowed", "always")
		d.limit.ChargeDenied = i == 1
	},
}

// replacesFields are the keys of an entry of replaces.
var replacesFields = strictyaml.Fields[rateLimitDecoder]{
	"name": func(d *rateLimitDecoder, n *strictyaml.Node) {
		d.rule.Replaces = append(d.rule.Replaces, d.text(n, "replaces: name"))
	},
}

// rateLimit reads one limit, or a list of limits that all apply.
func (d *descriptorDecoder) rateLimit(n *strictyaml.Node) {
	switch n.Kind {
	case strictyaml.Null:
	case strictyaml.Mapping:
		l := d.oneRateLimit(n)
		if l.limit.Name != "" {
			d.rule.Name, l.limit.Name = l.limit.Name, ""
		}
		d.rule.Unlimited = l.unlimited
		if !l.unlimited {
			d.rule.Limits = []rules.Limit{l.limit}
		}
	case strictyaml.Sequence:
		d.rateLimits(n)
	default:
		d.Fault(n, "error loading config file: rate_limit: is %s: write a mapping, {unit: minute, requests_per_unit: 5}", n)
	}
}

// rateLimits reads a list. The first name in the list is the name of all of its limits for replaces.
func (d *descriptorDecoder) rateLimits(n *strictyaml.Node) {
	for _, item := range n.Items {
		if item.Kind != strictyaml.Mapping {
			continue // checkKeys has reported it
		}
		l := d.oneRateLimit(item)
		if l.unlimited {
			d.Fault(item, "an unlimited rate_limit cannot be in a list: write it alone")
		}
		if d.rule.Name == "" {
			d.rule.Name = l.limit.Name
		}
		d.rule.Limits = append(d.rule.Limits, l.limit)
	}
	if len(n.Items) == 0 {
		d.Fault(n, "rate_limit: the list is empty: write a limit, {unit: minute, requests_per_unit: 5}, or remove it")
	}
}

func (d *descriptorDecoder) oneRateLimit(n *strictyaml.Node) *rateLimitDecoder {
	l := &rateLimitDecoder{descriptorDecoder: d, multiplier: 1}
	l.limit.Pos = d.at(n)
	l.limit.Limit.Algorithm = sluice.FixedWindow
	for _, field := range n.Fields {
		if decode := rateLimitFields[field.Key.Text]; decode != nil {
			decode(l, field.Value)
		}
	}
	d.partial = d.partial || !n.Whole()
	before := d.Count()
	if !loses(n, "unit") {
		l.readWindow(n)
	}
	if d.Count() == before && !l.unlimited && !l.uncertain && n.Whole() {
		d.checkLimit(n, "rate_limit", l.limit.Limit)
	}
	return l
}

func (d *rateLimitDecoder) requestsPerUnit(n *strictyaml.Node) {
	if n.Kind == strictyaml.Null || n.Type == strictyaml.Float { // null is 0; a float is already reported
		return
	}
	count, ok := wholeNumber(n)
	if !ok || count < 0 || count > math.MaxUint32 {
		d.Fault(n, "error loading config file: requests_per_unit: is %s: "+
			"write a whole number between 0 and %d, without quotes", n, uint32(math.MaxUint32))
		return
	}
	d.limit.Limit.Count = count
}

// readWindow determines the length of the window.
func (d *rateLimitDecoder) readWindow(n *strictyaml.Node) {
	if d.uncertain && d.unit == nil && d.window == nil {
		return
	}
	unit := ""
	at := n
	if d.unit != nil {
		unit, at = d.text(d.unit, "unit"), d.unit
		if d.unit.Kind == strictyaml.Mapping || d.unit.Kind == strictyaml.Sequence {
			return
		}
	}
	length, valid := envoyUnits[strings.ToLower(unit)]
	best := suggest.Closest(unit, envoyUnitNames)
	switch {
	case d.unlimited && (valid || d.window != nil):
		d.Fault(at, "should not specify rate limit unit when unlimited")
	case d.unlimited:
	case d.window != nil && d.unit != nil:
		d.Fault(d.window, "window and unit cannot be combined: remove one")
	case d.window != nil && d.multiplier != 1:
		d.Fault(d.window, "window and unit_multiplier cannot be combined: write the whole window, or use unit")
	case d.window != nil:
		d.limit.Limit.Window, _ = d.Duration(d.window, "window")
	case !valid && best != "":
		d.Fault(at, "invalid rate limit unit '%s': did you mean '%s'?", unit, best)
	case !valid:
		d.Fault(at, "invalid rate limit unit '%s'", unit)
	case int64(366*24*time.Hour/length) < d.multiplier:
		d.Fault(at, "unit_multiplier: %d times a %s is more than 366 days", d.multiplier, strings.ToLower(unit))
	default:
		d.limit.Limit.Window = length * time.Duration(d.multiplier)
	}
}

func (d *rateLimitDecoder) replaces(n *strictyaml.Node) {
	if n.Kind != strictyaml.Sequence {
		if n.Kind != strictyaml.Null {
			d.Fault(n, "error loading config file: replaces: is %s: write a list of names, [{name: other}]", n)
		}
		return
	}
	for _, item := range n.Items {
		before := len(d.rule.Replaces)
		for _, field := range item.Fields {
			if decode := replacesFields[field.Key.Text]; decode != nil {
				decode(d, field.Value)
			}
		}
		d.partial = d.partial || !item.Whole()
		if item.Kind == strictyaml.Mapping && len(d.rule.Replaces) == before {
			d.rule.Replaces = append(d.rule.Replaces, "") // reported separately
		}
	}
}
