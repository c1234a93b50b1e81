package config

import (
	"encoding/json"
	"maps"
	"strings"
)

// shape is a JSON Schema.
type shape map[string]any

// with returns the schema with one more condition.
func (s shape) with(key string, value any) shape {
	c := maps.Clone(s)
	c[key] = value
	return c
}

// Schemas of values. Some conditions, such as bounds of sizes, cannot be expressed in them; only the decoder checks these.
var (
	textShape     = shape{"type": []string{"string", "number", "boolean"}, "minLength": 1}
	headerShape   = textShape.with("pattern", "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	pathShape     = shape{"type": "string", "pattern": "^/"}
	textsShape    = listOf(textShape)
	durationShape = shape{"type": "string", "pattern": durationPattern}
	positiveShape = durationShape.with("not", shape{"pattern": "^[^1-9]*$"})
	sizeShape     = shape{"type": "string", "pattern": sizePattern.String(), "not": shape{"pattern": "^0+[A-Z]"}}
	addressShape  = shape{"type": "string", "pattern": "^(" + Off + `|unix:/*[^/].*|([^:\[\]]*|\[[^\[\]]*\]):` + portPattern + ")$"}
)

// The patterns of durations, rates and ports. JSON Schema draft 7 has no flags, so letters are listed in both cases.
const (
	durationPattern = `^(([0-9]+(\.[0-9]*)?|\.[0-9]+)[dw])*(([0-9]+(\.[0-9]*)?|\.[0-9]+)[dw]|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$`
	ratePattern     = `^\s*[0-9_]*[1-9][0-9_]*[kM]?\s*/\s*(0*[1-9][0-9]*)?\s*([mM][sS]|[mM][iI][lL][lL][iI][sS][eE][cC][oO][nN][dD][sS]?|[sS]|[sS][eE][cC][sS]?|[sS][eE][cC][oO][nN][dD][sS]?|[mM]|[mM][iI][nN][sS]?|[mM][iI][nN][uU][tT][eE][sS]?|[hH]|[hH][oO][uU][rR][sS]?|[dD]|[dD][aA][yY][sS]?|[wW]|[wW][eE][eE][kK][sS]?|[mM][oO][nN][tT][hH][sS]?|[yY]|[yY][eE][aA][rR][sS]?)\s*$`
	portPattern     = `0*([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])`
)

// variableShape is the schema of a text with an environment variable, whose value is unknown.
var variableShape = shape{"type": "string", "pattern": `\$\{[^}]+\}`}

// orVariable returns the schema of a value or a text with an environment variable.
func orVariable(s shape) shape { return shape{"anyOf": []shape{s, variableShape}} }

// listOf returns the schema of one value or a list of at least one value.
func listOf(item shape) shape {
	return shape{"anyOf": []shape{orVariable(item), {"type": "array", "minItems": 1, "items": orVariable(item)}}}
}

// serviceSections are conditions on sections: required keys and keys that belong together.
var serviceSections = map[string]shape{
	"listeners.grpc.tls":      {"required": []string{"cert_file", "key_file"}},
	"listeners.http.tls":      {"required": []string{"cert_file", "key_file"}},
	"listeners.resp.tls":      {"required": []string{"cert_file", "key_file"}},
	"listeners.gateway.tls":   {"required": []string{"cert_file", "key_file"}},
	"listeners.admin.tls":     {"required": []string{"cert_file", "key_file"}},
	"listeners.gateway.acme":  {"required": []string{"domains"}},
	"gateway.access_log":      {"required": []string{"file"}},
	"authentication.api_keys": {"required": []string{"files"}},
	"authentication.basic":    {"required": []string{"files"}},
	"authentication.jwt":      {"required": []string{"algorithms"}, "oneOf": oneOf("secret_file", "jwks_file", "jwks_url")},
	"tracing":                 {"required": []string{"endpoint"}},
	"metrics.otlp":            {"required": []string{"endpoint"}},
	"queue":                   {"oneOf": oneOf("directory", "url")},
	"store.tls":               {"dependencies": certificateWithKey},
	"tracing.tls":             {"dependencies": certificateWithKey},
	"metrics.otlp.tls":        {"dependencies": certificateWithKey},
	"queue.tls":               {"dependencies": certificateWithKey},
}

// entrySections are such conditions on sections of upstreams and routes.
var entrySections = map[string]shape{
	"cors":         {"required": []string{"origins"}},
	"health_check": {"required": []string{"path"}},
	"tls":          {"dependencies": certificateWithKey},
}

var certificateWithKey = shape{"cert_file": []string{"key_file"}, "key_file": []string{"cert_file"}}

// oneOf returns the condition that a section has exactly one of some keys.
func oneOf(keys ...string) (all []shape) {
	for _, key := range keys {
		all = append(all, shape{"required": []string{key}})
	}
	return all
}

// Schema returns the JSON Schema of the configuration file, for editors.
func Schema() ([]byte, error) {
	top := object()
	top["$schema"] = "http://json-schema.org/draft-07/schema#"
	top["title"] = "Configuration of sluice serve"
	for _, s := range Settings() {
		put(top, s.Name, s.schema())
	}
	constrain(top, serviceSections)
	b, err := json.MarshalIndent(top, "", "  ")
	return append(b, '\n'), err
}

func object() shape {
	return shape{"type": "object", "additionalProperties": false, "properties": shape{}}
}

// put adds the schema of a value below the sections in its name.
func put(at shape, name string, schema shape) {
	section, key := "", name
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		section, key = name[:i], name[i+1:]
	}
	sectionSchema(at, section, true)["properties"].(shape)[key] = schema
}

// constrain adds conditions to the schemas of sections that exist.
func constrain(at shape, sections map[string]shape) {
	for name, conditions := range sections {
		if s := sectionSchema(at, name, false); s != nil {
			maps.Copy(s, conditions)
		}
	}
}

// entryShape returns the schema of a setting whose value is a list or mapping of entries with their own keys.
func (s *Setting) entryShape() shape {
	switch s.Type {
	case upstreamsType:
		return shape{"type": "object", "propertyNames": shape{"pattern": upstreamName.String()}, "additionalProperties": keySchema(new(Upstream).keys(), "servers")}
	case routesType:
		return shape{"type": "array", "minItems": 1, "items": keySchema(new(Route).keys(), "upstream")}
	}
	return shape{"type": "array", "items": keySchema(new(KeyPair).keys(), "cert_file", "key_file")} // certificatesType
}

// schema returns the JSON Schema of a setting, with its description.
func (s *Setting) schema() shape {
	doc := s.Doc
	if s.Default != "" {
		doc += ". Default " + s.Default
	}
	value := s.shape
	if value == nil {
		value = s.entryShape()
	}
	if t := value["type"]; t != "object" && t != "array" {
		value = orVariable(value)
	}
	return value.with("description", doc)
}

// sectionSchema returns the schema of a section, or nil. With makeIt it adds a missing section.
func sectionSchema(at shape, name string, makeIt bool) shape {
	if name == "" {
		return at
	}
	for part := range strings.SplitSeq(name, ".") {
		below := at["properties"].(shape)
		if below[part] == nil && !makeIt {
			return nil
		}
		if below[part] == nil {
			below[part] = object()
		}
		at = below[part].(shape)
	}
	return at
}
