package rulefile

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/internal/suggest"
	"github.com/sluiceproject/sluice/rules"
)

// Messages begin with the text of Envoy's service if it has the same error, so that users recognize them.

// envoyKeys are the keys of Envoy's service. It accepts each of them anywhere and ignores misplaced ones. So does this
// package, because Envoy's files must work unchanged.
var envoyKeys = []string{
	"domain", "key", "value", "descriptors", "rate_limit", "unit", "requests_per_unit", "unlimited", "shadow_mode",
	"quota_mode", "name", "replaces", "detailed_metric", "value_to_metric", "share_threshold", "metadata",
}

// ownKeys are Sluice's keys inside rate_limit.
var ownKeys = []string{"algorithm", "burst", "window", "unit_multiplier", "on_failure", "accuracy", "charge"}

// envoyFault returns the message of a YAML error with the text of Envoy's service.
func envoyFault(f strictyaml.Fault) string {
	if f.Reason == strictyaml.KeyType {
		return "config error, key is not of type string: " + f.Key + ": quote it, or write a word"
	}
	return "error loading config file: " + f.Msg
}

// domain reads a file in Envoy's format.
func (f *file) domain() {
	f.checkKeys(f.root, "")
	d := &descriptorDecoder{file: f}
	n := f.root.Field("domain")
	if n == nil { // it has an error
		n = &strictyaml.Node{Kind: strictyaml.Sequence}
	}
	domain := rules.Domain{Pos: f.at(n)}
	if n.Line > 0 {
		domain.Name = d.text(n, "domain")
	}
	if domain.Name == "" && n.Kind != strictyaml.Mapping && n.Kind != strictyaml.Sequence {
		f.Fault(n, "config file cannot have empty domain")
	}
	if list := f.root.Field("descriptors"); list != nil {
		f.saysNone = f.saysNone || list.Kind == strictyaml.Sequence && len(list.Items) == 0
		domain.Descriptors = f.descriptors(list)
	}
	f.flush("") // the rest of the domain is compiled to find more errors
	if domain.Name == "" {
		return
	}
	first, exists := f.domains[domain.Name]
	if exists && f.options.MergeDomains {
		f.cfg.Domains[first].Descriptors = append(f.cfg.Domains[first].Descriptors, domain.Descriptors...)
		return
	}
	if !exists {
		f.domains[domain.Name] = len(f.cfg.Domains)
	}
	f.cfg.Domains = append(f.cfg.Domains, domain) // a duplicate domain is reported when the rules are compiled
}

// checkKeys reports keys and values that Envoy's format does not have, at any depth.
func (f *file) checkKeys(n *strictyaml.Node, in string) {
	for _, field := range n.Fields {
		key := field.Key.Text
		own := slices.Contains(ownKeys, key)
		if !slices.Contains(envoyKeys, key) && (!own || in != "rate_limit") {
			f.unknownEnvoyKey(field.Key, own)
			continue
		}
		if key == "metadata" {
			continue
		}
		switch v := field.Value; {
		case v.Kind == strictyaml.Mapping:
			f.checkKeys(v, key)
		case v.Kind == strictyaml.Sequence:
			for _, item := range v.Items {
				if item.Kind != strictyaml.Mapping {
					f.Fault(item, "config error, yaml file contains list of type other than map: %s", envoyValue(item))
					continue
				}
				f.checkKeys(item, key)
			}
		case v.Type == strictyaml.Float:
			f.Fault(v, "error checking config: %s: %s is not a whole number: write one, or quote a text", key, v.Text)
		}
	}
}

func (f *file) unknownEnvoyKey(key *strictyaml.Node, own bool) {
	best := suggest.Closest(key.Text, envoyKeys)
	switch {
	case own:
		f.Fault(key, "config error, unknown key '%s': move it into rate_limit", key.Text)
	case slices.Contains(fileFields.Keys(), key.Text):
		f.Fault(key, "config error, unknown key '%s': a file with a domain is in Envoy's format: "+
			"move this to another file", key.Text)
	case best != "":
		f.Fault(key, "config error, unknown key '%s': did you mean '%s'?", key.Text, best)
	default:
		f.Fault(key, "config error, unknown key '%s'", key.Text)
	}
}

// envoyValue returns an entry of a list for a message.
func envoyValue(n *strictyaml.Node) string {
	if n.Kind != strictyaml.Scalar {
		return n.String()
	}
	if len(n.Text) > 60 {
		return strings.ToValidUTF8(n.Text[:60], "") + "…"
	}
	return n.Text
}

type descriptorDecoder struct {
	*file
	rule    rules.DescriptorRule
	partial bool // a part of it could not be read, which is already reported
}

var descriptorFields = strictyaml.Fields[descriptorDecoder]{
	"key":         func(d *descriptorDecoder, n *strictyaml.Node) { d.rule.Key = d.text(n, "key") },
	"value":       func(d *descriptorDecoder, n *strictyaml.Node) { d.rule.Value = d.text(n, "value") },
	"descriptors": nil, // read after the others
	"rate_limit":  (*descriptorDecoder).rateLimit,
	"metadata":    (*descriptorDecoder).metadata,
	"shadow_mode": func(d *descriptorDecoder, n *strictyaml.Node) { d.rule.Shadow = d.flag(n, "shadow_mode") },
	"quota_mode":  func(d *descriptorDecoder, n *strictyaml.Node) { d.rule.Quota = d.flag(n, "quota_mode") },
	"detailed_metric": func(d *descriptorDecoder, n *strictyaml.Node) {
		d.rule.DetailedMetric = d.flag(n, "detailed_metric")
	},
	"value_to_metric": func(d *descriptorDecoder, n *strictyaml.Node) {
		d.rule.ValueToMetric = d.flag(n, "value_to_metric")
	},
	"share_threshold": func(d *descriptorDecoder, n *strictyaml.Node) {
		d.rule.ShareThreshold = d.flag(n, "share_threshold")
	},
}

// descriptors reads a list of descriptors. checkKeys has reported entries that are not mappings and unknown keys.
func (f *file) descriptors(n *strictyaml.Node) []rules.DescriptorRule {
	if n.Kind != strictyaml.Sequence {
		if n.Kind != strictyaml.Null {
			f.Fault(n, "error loading config file: descriptors: is %s: write a list, one \"- entry\" per line", n)
		}
		return nil
	}
	var all []rules.DescriptorRule
	for _, item := range n.Items {
		if item.Kind != strictyaml.Mapping {
			continue
		}
		d := &descriptorDecoder{file: f, rule: rules.DescriptorRule{Pos: f.at(item)}, partial: !item.Whole()}
		before := f.Count()
		var below *strictyaml.Node
		for _, field := range item.Fields {
			if field.Key.Text == "descriptors" {
				below = field.Value
			} else if decode := descriptorFields[field.Key.Text]; decode != nil {
				decode(d, field.Value)
			}
		}
		if f.Count() > before || d.partial {
			// Only the position matters now: further errors would be consequences of the reported ones.
			d.rule = rules.DescriptorRule{Pos: d.rule.Pos, Key: d.rule.Key, Value: d.rule.Value}
		}
		if below != nil {
			d.rule.Descriptors = f.descriptors(below)
		}
		if n := item.Field("key"); n != nil && n.Kind != strictyaml.Scalar && n.Kind != strictyaml.Null || loses(item, "key") || loses(item, "value") {
			continue // the descriptor is unknown
		}
		all = append(all, d.rule)
	}
	return all
}

// loses reports whether a mapping has no value for key, and may have had one with an error.
func loses(n *strictyaml.Node, key string) bool { return n.Field(key) == nil && n.MayLose(key) }

// text reads a text; numbers and booleans are read as written, and null is the empty text.
func (d *descriptorDecoder) text(n *strictyaml.Node, what string) string {
	if n.Kind == strictyaml.Mapping || n.Kind == strictyaml.Sequence {
		d.Fault(n, "error loading config file: %s: is %s: write a text", what, n)
	}
	return n.Text
}

// flag reports whether a boolean is true, in all spellings of YAML 1.1, because Envoy's service accepts them.
func (d *descriptorDecoder) flag(n *strictyaml.Node, what string) bool {
	if n.Kind == strictyaml.Null {
		return false
	}
	if value, ok := boolean(n); ok {
		return value
	}
	d.Fault(n, "error loading config file: %s: is %s: write true or false, without quotes", what, n)
	return false
}

// boolean reads a boolean in all spellings of YAML 1.1.
func boolean(n *strictyaml.Node) (value, ok bool) {
	if n.Kind == strictyaml.Scalar && !n.Quoted {
		switch n.Text {
		case "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y":
			return true, true
		case "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N":
			return false, true
		}
	}
	return false, false
}

// metadata keeps a mapping unchanged, with the booleans of YAML 1.1, which Envoy's service reads.
func (d *descriptorDecoder) metadata(n *strictyaml.Node) {
	switch n.Kind {
	case strictyaml.Null:
	case strictyaml.Mapping:
		d.rule.Metadata, _ = d.goValue(n).(map[string]any)
	default:
		d.Fault(n, "error parsing metadata: is %s: write a mapping, key: value", n)
	}
}

func (f *file) goValue(n *strictyaml.Node) any {
	switch n.Kind {
	case strictyaml.Null:
		return nil
	case strictyaml.Mapping:
		m := make(map[string]any, len(n.Fields))
		for _, field := range n.Fields {
			m[field.Key.Text] = f.goValue(field.Value)
		}
		return m
	case strictyaml.Sequence:
		list := make([]any, 0, len(n.Items))
		for _, item := range n.Items {
			list = append(list, f.goValue(item))
		}
		return list
	}
	if value, ok := boolean(n); ok {
		return value
	}
	switch n.Type {
	case strictyaml.Int:
		if i, ok := wholeNumber(n); ok {
			return i
		}
	case strictyaml.Float:
	default:
		return n.Text
	}
	x, err := strconv.ParseFloat(strings.ReplaceAll(n.Text, "_", ""), 64)
	if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
		f.Fault(n, "error parsing metadata: %s is not a number that a response can contain: quote it", n.Text)
		return nil
	}
	return x
}

// wholeNumber reads a whole number in all spellings of YAML 1.1.
func wholeNumber(n *strictyaml.Node) (int64, bool) {
	i, err := strconv.ParseInt(strings.ReplaceAll(n.Text, "_", ""), 0, 64)
	return i, err == nil && n.Kind == strictyaml.Scalar && n.Type == strictyaml.Int
}
