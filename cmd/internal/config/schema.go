package config

import (
	"encoding/json"
	"strings"
)

// Schema is the JSON Schema of the file, for editors.
func Schema() ([]byte, error) {
	top := object()
	top["$schema"] = "http://json-schema.org/draft-07/schema#"
	top["title"] = "Configuration of sluice serve"
	for _, s := range Settings() {
		put(top, s.Name, s.schema())
	}
	b, err := json.MarshalIndent(top, "", "  ")
	return append(b, '\n'), err
}

func object() map[string]any {
	return map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
}

// put enters the schema of a value below the sections of its name.
func put(at map[string]any, name string, schema map[string]any) {
	names := strings.Split(name, ".")
	for _, name := range names[:len(names)-1] {
		below := at["properties"].(map[string]any)
		if below[name] == nil {
			below[name] = object()
		}
		at = below[name].(map[string]any)
	}
	at["properties"].(map[string]any)[names[len(names)-1]] = schema
}

// schema is of one value. Any may also be a text with a variable in it.
func (s *Setting) schema() map[string]any {
	doc := s.Doc
	if s.Default != "" {
		doc += ". Default " + s.Default
	}
	variable := map[string]any{"type": "string", "pattern": `\$\{[^}]+\}`}
	text := map[string]any{"type": []string{"string", "number", "boolean"}}
	list := map[string]any{"anyOf": []any{text, map[string]any{"type": "array", "minItems": 1, "items": text}}}
	value := text
	switch {
	case s.Type == "number":
		value = map[string]any{"type": "integer"}
	case s.Type == "fraction":
		value = map[string]any{"type": "number", "minimum": 0, "maximum": 1}
	case s.Type == "boolean":
		value = map[string]any{"type": "boolean"}
	case s.Type == "size":
		value = map[string]any{"type": "string", "pattern": sizePattern.String()}
	case s.Type == sizeOrOff:
		value = map[string]any{"anyOf": []any{map[string]any{"type": "string", "pattern": sizePattern.String()}, map[string]any{"enum": []string{Off}}}}
	case s.Type == "duration":
		value = map[string]any{"type": "string", "pattern": `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h|d|w))+$`}
	case s.Type == upstreamsType:
		value = map[string]any{"type": "object", "additionalProperties": keySchema(new(Upstream).keys())}
	case s.Type == routesType:
		value = map[string]any{"type": "array", "minItems": 1, "items": keySchema(new(Route).keys())}
	case s.Type == certificatesType:
		value = map[string]any{"type": "array", "minItems": 1, "items": keySchema(new(Pair).keys())}
	case strings.HasPrefix(s.Type, "list"):
		value = list
	case strings.HasPrefix(s.Type, "mapping"):
		value = map[string]any{"type": "object", "additionalProperties": list}
	case strings.HasPrefix(s.Type, "`"):
		value = map[string]any{"enum": strings.Split(strings.ReplaceAll(s.Type, "`", ""), ", ")}
	}
	return map[string]any{"description": doc, "anyOf": []any{value, variable}}
}
