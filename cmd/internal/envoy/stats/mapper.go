package stats

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Mapper maps statistics to names and labels of Prometheus, by the rules of statsd_exporter's mapping files.
type Mapper struct {
	globs, regexes []mapping // globs are tried first, as in statsd_exporter
}

type mapping struct {
	match  *regexp.Regexp
	kind   string // counter, gauge or observer; empty: any
	name   string
	labels map[string]string
	scale  float64
	drop   bool
}

// Metric is a metric of Prometheus.
type Metric struct {
	Name   string
	Labels string // in text format: {a="1",b="2"}, or empty
	Scale  float64
}

// DefaultMapper returns the default mapping of the reference.
func DefaultMapper(milliseconds bool) *Mapper {
	m := &Mapper{}
	for _, kind := range []string{"near_limit", "over_limit", "total_hits", "within_limit", "shadow_mode"} {
		name := "ratelimit_service_rate_limit_" + kind
		m.globs = append(m.globs, mapping{
			match: glob("ratelimit.service.rate_limit.*.*." + kind), name: name, scale: 1,
			labels: map[string]string{"domain": "$1", "key1": "$2"},
		})
		m.regexes = append(m.regexes, mapping{
			match: regexp.MustCompile(`^ratelimit\.service\.rate_limit\.([^.]*)\.([^.]*)\.([^.]*)(\..*)?\.` + kind + "$"), name: name,
			labels: map[string]string{"domain": "$1", "key1": "$2", "key2": "$3"}, scale: 1,
		})
	}
	scale := 0.001
	if milliseconds {
		scale = 1
	}
	method := map[string]string{"grpc_method": "$1"}
	m.globs = append(m.globs,
		mapping{
			match: glob("ratelimit.service.call.should_rate_limit.*"), name: "ratelimit_service_should_rate_limit_error",
			labels: map[string]string{"err_type": "$1"}, kind: "counter", scale: 1,
		},
		mapping{match: glob("ratelimit_server.*.total_requests"), name: "ratelimit_service_total_requests", labels: method, scale: 1},
		mapping{
			match: glob("ratelimit_server.*.response_time"), name: "ratelimit_service_response_time_seconds",
			labels: method, scale: scale,
		},
	)
	return m
}

// ParseMapper parses a mapping file of statsd_exporter. It supports the keys match, match_type, match_metric_type, name,
// labels, scale and action; timers are always histograms with the default buckets of Prometheus. The warnings list other keys.
func ParseMapper(data []byte) (m *Mapper, warnings []string, err error) {
	root, faults := strictyaml.Parse(data)
	if len(faults) > 0 {
		return nil, nil, fmt.Errorf("line %d: %s", faults[0].Line, faults[0].Msg)
	}
	if root == nil || root.Field("mappings") == nil || root.Field("mappings").Kind != strictyaml.Sequence {
		return nil, nil, fmt.Errorf("mappings is missing: write mappings: followed by a list")
	}
	m = &Mapper{}
	ignored := map[string]bool{}
	for _, field := range root.Fields {
		ignored[field.Key.Text] = field.Key.Text != "mappings"
	}
	for _, item := range root.Field("mappings").Items {
		one, regex, err := parseMapping(item, ignored)
		if err != nil {
			return nil, nil, err
		}
		if regex {
			m.regexes = append(m.regexes, one)
		} else {
			m.globs = append(m.globs, one)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(ignored)) {
		if ignored[key] {
			warnings = append(warnings, key+" is ignored")
		}
	}
	return m, warnings, nil
}

func parseMapping(item *strictyaml.Node, ignored map[string]bool) (m mapping, regex bool, err error) {
	m.scale = 1
	match := ""
	for _, field := range item.Fields {
		value := field.Value
		switch field.Key.Text {
		case "match":
			match = value.Text
		case "match_type":
			regex = value.Text == "regex"
		case "match_metric_type":
			m.kind = strings.Replace(value.Text, "timer", "observer", 1)
		case "name":
			m.name = value.Text
		case "action":
			m.drop = value.Text == "drop"
		case "scale":
			if m.scale, err = strconv.ParseFloat(value.Text, 64); err != nil {
				return m, false, fmt.Errorf("line %d: scale: write a number such as 0.001", value.Line)
			}
		case "labels":
			m.labels = make(map[string]string)
			for _, label := range value.Fields {
				m.labels[label.Key.Text] = label.Value.Text
			}
		case "timer_type", "observer_type", "help":
		default:
			ignored[field.Key.Text] = true
		}
	}
	if match == "" || m.name == "" && !m.drop {
		return m, false, fmt.Errorf("line %d: match or name is missing: write both", item.Line)
	}
	if !regex {
		m.match = glob(match)
		return m, false, nil
	}
	if m.match, err = regexp.Compile(match); err != nil {
		return m, false, fmt.Errorf("line %d: match is not a valid regular expression: %w", item.Line, err)
	}
	return m, true, nil
}

// glob returns the regular expression of a pattern in which * matches any text without dots.
func glob(match string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(match), `\*`, `([^.]*)`) + "$")
}

// Map returns the metric of a statistic; ok is false if it is dropped. A statistic without mapping keeps its name.
func (m *Mapper) Map(name, kind string, tags map[string]string) (metric Metric, ok bool) {
	for _, all := range [][]mapping{m.globs, m.regexes} {
		for i := range all {
			one := &all[i]
			if one.kind != "" && one.kind != kind {
				continue
			}
			groups := one.match.FindStringSubmatch(name)
			if groups == nil {
				continue
			}
			if one.drop {
				return Metric{}, false
			}
			return Metric{escapeName(expand(one.name, groups)), labelText(one.labels, groups, tags), one.scale}, true
		}
	}
	return Metric{escapeName(name), labelText(nil, nil, tags), 1}, true
}

var oddNameByte = regexp.MustCompile(`[^a-zA-Z0-9_:]`)

// escapeName replaces characters that are invalid in names of Prometheus.
func escapeName(name string) string {
	name = oddNameByte.ReplaceAllString(name, "_")
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	return name
}

func labelText(labels map[string]string, groups []string, tags map[string]string) string {
	all := make(map[string]string, len(labels)+len(tags))
	for name, value := range tags {
		all[escapeName(name)] = value
	}
	for name, value := range labels {
		all[escapeName(name)] = expand(value, groups)
	}
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i == 0 {
			b.WriteByte('{')
		} else {
			b.WriteByte(',')
		}
		b.WriteString(name + `="` + labelValue.Replace(strings.ToValidUTF8(all[name], "\ufffd")) + `"`)
	}
	b.WriteByte('}')
	return b.String()
}

var labelValue = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
