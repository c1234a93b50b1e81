// Package openapitest compares the fields of real responses with an OpenAPI document, in both directions.
package openapitest

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// Fields records the documented fields that responses have had. It is safe for concurrent use.
type Fields struct {
	doc  map[string]any
	mu   sync.Mutex // guards seen
	seen map[string]bool
}

// New returns the Fields of an OpenAPI document in YAML.
func New(document []byte) (*Fields, error) {
	var tree any
	if err := yaml.Unmarshal(document, &tree); err != nil {
		return nil, err
	}
	b, err := json.Marshal(tree) // which also expands YAML aliases
	if err != nil {
		return nil, err
	}
	f := &Fields{seen: map[string]bool{}}
	return f, json.Unmarshal(b, &f.doc)
}

// AllTestsRan reports whether no flag of the test program selects tests.
func AllTestsRan() bool {
	for _, name := range []string{"test.run", "test.skip", "test.fuzz", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return true
}

// Record records the fields of a JSON response and returns those that the document does not have. An operation, a
// status or a media type that is not in the document is not compared.
func (f *Fields) Record(method, path string, status int, kind string, body []byte) (undocumented []string) {
	var value any
	if json.Unmarshal(body, &value) != nil {
		return nil
	}
	_, responses := f.find("paths", path, strings.ToLower(method), "responses")
	code := fmt.Sprint(status)
	if responses[code] == nil {
		code = "default"
	}
	at, schema := f.find("paths", path, strings.ToLower(method), "responses", code, "content", kind, "schema")
	if schema == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.walk(at, schema, value, &undocumented)
	return undocumented
}

// Unseen returns the documented fields of responses that no recorded response had.
func (f *Fields) Unseen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(f.documented(), func(field string) bool { return f.seen[field] })
}

var (
	unit      = regexp.MustCompile(`_(ms|seconds)$`)
	otherUnit = regexp.MustCompile(`_(s|sec|secs|millis|us|ns|minutes|hours|for)$`)
	lasting   = regexp.MustCompile(`(^|_)(after|delay|uptime|oldest|window|age|wait|elapsed|timeout|ttl|kept|blocked)$`)
)

// WrongUnits returns the documented fields that hold a duration and do not end in the suffix that the API uses, "_ms" or
// "_seconds".
func (f *Fields) WrongUnits(suffix string) (wrong []string) {
	for _, field := range f.documented() {
		name := field[strings.LastIndex(field, "/")+1:]
		_, schema := f.find(pathOf(field)...)
		kinds := fmt.Sprint(schema["type"])
		number := strings.Contains(kinds, "integer") || strings.Contains(kinds, "number")
		if number && (otherUnit.MatchString(name) || lasting.MatchString(name) || unit.MatchString(name) && !strings.HasSuffix(name, suffix)) {
			wrong = append(wrong, field)
		}
	}
	return wrong
}

// pathOf returns the names of a JSON pointer, or of a reference to one.
func pathOf(pointer string) []string {
	names := strings.Split(strings.TrimPrefix(strings.TrimPrefix(pointer, "#"), "/"), "/")
	for i := range names {
		names[i] = strings.ReplaceAll(names[i], "~1", "/")
	}
	return names
}

// find returns the object at a place of the document, following references, or nil if there is none.
func (f *Fields) find(names ...string) (at string, object map[string]any) {
	object = f.doc
	for _, name := range names {
		object, _ = object[name].(map[string]any)
		at += "/" + strings.ReplaceAll(name, "/", "~1")
		if ref, ok := object["$ref"].(string); ok && len(object) == 1 {
			at, object = f.find(pathOf(ref)...)
		}
	}
	return at, object
}

// parts calls do for a schema and for all schemas that it is composed of.
func (f *Fields) parts(at string, schema map[string]any, do func(at string, schema map[string]any)) {
	do(at, schema)
	if ref, ok := schema["$ref"].(string); ok {
		to, object := f.find(pathOf(ref)...)
		f.parts(to, object, do)
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		all, _ := schema[word].([]any)
		for i := range all {
			part, _ := all[i].(map[string]any)
			f.parts(fmt.Sprintf("%s/%s/%d", at, word, i), part, do)
		}
	}
}

// walk records the fields of a value as seen.
func (f *Fields) walk(at string, schema map[string]any, value any, undocumented *[]string) {
	switch v := value.(type) {
	case []any:
		f.parts(at, schema, func(at string, part map[string]any) {
			if items, ok := part["items"].(map[string]any); ok {
				for i := range v {
					f.walk(at+"/items", items, v[i], undocumented)
				}
			}
		})
	case map[string]any:
		for name, child := range v {
			known := false
			f.parts(at, schema, func(at string, part map[string]any) {
				properties, _ := part["properties"].(map[string]any)
				if property, ok := properties[name].(map[string]any); ok {
					known = true
					f.seen[at+"/properties/"+name] = true
					f.walk(at+"/properties/"+name, property, child, undocumented)
				} else if other, ok := part["additionalProperties"]; ok && other != false || properties == nil && part["type"] == "object" {
					known = true
				}
			})
			if !known {
				*undocumented = append(*undocumented, at+"/properties/"+name)
			}
		}
	}
}

// documented returns the fields of all JSON responses in the document.
func (f *Fields) documented() []string {
	found, visited := map[string]bool{}, map[string]bool{}
	var collect func(at string, schema map[string]any)
	collect = func(at string, schema map[string]any) {
		if visited[at] {
			return
		}
		visited[at] = true
		f.parts(at, schema, func(at string, part map[string]any) {
			properties, _ := part["properties"].(map[string]any)
			for name, property := range properties {
				found[at+"/properties/"+name] = true
				property, _ := property.(map[string]any)
				collect(at+"/properties/"+name, property)
			}
			if items, ok := part["items"].(map[string]any); ok {
				collect(at+"/items", items)
			}
		})
	}
	paths, _ := f.doc["paths"].(map[string]any)
	for path, methods := range paths {
		methods, _ := methods.(map[string]any)
		for method := range methods {
			_, responses := f.find("paths", path, method, "responses")
			for status := range responses {
				_, content := f.find("paths", path, method, "responses", status, "content")
				for kind := range content {
					collect(f.find("paths", path, method, "responses", status, "content", kind, "schema"))
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
