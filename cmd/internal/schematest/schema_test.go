package schematest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// root is the path of the repository's root.
const root = "../../.."

var schemaKinds = []string{"rules", "envoy", "test"}

// testSchema is a schema, decoded and compiled.
type testSchema struct {
	doc      any
	compiler *jsonschema.Compiler
	name     string
}

func openSchema(t testing.TB, kind string) *testSchema {
	t.Helper()
	text, err := rulefile.Schema(kind)
	if kind == "service" {
		text, err = config.Schema()
	}
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	s := &testSchema{doc, jsonschema.NewCompiler(), "file:///" + kind + ".schema.json"}
	s.compiler.DefaultDraft(jsonschema.Draft7)
	if err := s.compiler.AddResource(s.name, doc); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return s
}

// at compiles the schema at a JSON pointer.
func (s *testSchema) at(t testing.TB, pointer string) *jsonschema.Schema {
	t.Helper()
	compiled, err := s.compiler.Compile(s.name + "#" + pointer)
	if err != nil {
		t.Fatalf("%s%s: %v", s.name, pointer, err)
	}
	return compiled
}

// look returns the value at a JSON pointer.
func (s *testSchema) look(pointer string) any {
	at := s.doc
	for _, name := range strings.Split(pointer, "/")[1:] {
		switch node := at.(type) {
		case map[string]any:
			at = node[name]
		case []any:
			number, _ := strconv.Atoi(name)
			at = node[number]
		}
	}
	return at
}

// properties calls f for every set of properties in the schema.
func (s *testSchema) properties(f func(pointer string, properties map[string]any)) {
	var walk func(pointer string, node any)
	walk = func(pointer string, node any) {
		switch node := node.(type) {
		case map[string]any:
			for key, value := range node {
				properties, ok := value.(map[string]any)
				switch {
				case key == "examples":
					continue
				case key == "properties" && ok:
					f(pointer, properties)
				}
				walk(pointer+"/"+key, value)
			}
		case []any:
			for i := range node {
				walk(fmt.Sprintf("%s/%d", pointer, i), node[i])
			}
		}
	}
	walk("", s.doc)
}

func TestSchemaIsDraft7(t *testing.T) {
	for _, kind := range schemaKinds {
		s := openSchema(t, kind)
		if got := s.at(t, "").DraftVersion; got != 7 {
			t.Errorf("%s is of draft %d", kind, got)
		}
	}
	if _, err := rulefile.Schema("../../go.mod"); err == nil {
		t.Error("an unknown kind has a schema")
	}
}

// Editors show descriptions and offer examples, so every key has both, and the examples are valid. Draft 7 ignores
// other keys next to a $ref.
func TestSchemaHelps(t *testing.T) {
	for _, kind := range schemaKinds {
		s := openSchema(t, kind)
		s.properties(func(pointer string, properties map[string]any) {
			for name, value := range properties {
				at := pointer + "/properties/" + name
				property, _ := value.(map[string]any)
				if ref, ok := property["$ref"].(string); ok {
					if len(property) > 1 {
						t.Errorf("%s%s: draft 7 ignores other keys next to $ref: write allOf", kind, at)
					}
					property, _ = s.look(strings.TrimPrefix(ref, "#")).(map[string]any)
				}
				if property["const"] != nil && len(property) == 1 {
					continue // a condition on a property that is described elsewhere
				}
				examples, _ := property["examples"].([]any)
				if strings.Contains(pointer, "/dependencies/") || strings.Contains(pointer, "/longLimit/anyOf/") ||
					strings.Contains(pointer, "/rate_limit/oneOf/") {
					continue
				}
				if property["description"] == nil || len(examples) == 0 {
					t.Errorf("%s%s has no description or no examples", kind, at)
				}
				compiled := s.at(t, at)
				for _, example := range examples {
					if err := compiled.Validate(example); err != nil {
						t.Errorf("%s%s: the example %v is wrong: %v", kind, at, example, err)
					}
				}
			}
		})
	}
}

// sections maps the sections of rulefile.Keys to their places in the schemas.
var sections = map[string]string{
	"file":             "rules",
	"attribute":        "rules/definitions/attributeSource",
	"client_ip":        "rules/properties/client_ip",
	"paths":            "rules/properties/paths",
	"defaults":         "rules/properties/defaults",
	"match":            "rules/definitions/match",
	"condition":        "rules/definitions/condition/anyOf/2",
	"rule":             "rules/definitions/rule",
	"limit":            "rules/definitions/longLimit",
	"cost":             "rules/definitions/cost/anyOf/1",
	"charge":           "rules/definitions/charge/anyOf/1",
	"queue":            "rules/definitions/rule/properties/queue",
	"actual_cost":      "rules/definitions/rule/properties/actual_cost",
	"denial":           "rules/definitions/rule/properties/denial",
	"tiers":            "rules/definitions/rule/properties/tiers",
	"override":         "rules/definitions/rule/properties/overrides/anyOf/1/items",
	"priority":         "rules/definitions/priority",
	"adaptive_limit":   "rules/definitions/adaptiveLimit",
	"concurrency":      "rules/definitions/adaptiveLimit/properties/concurrency",
	"envoy file":       "envoy",
	"envoy descriptor": "envoy/definitions/descriptor",
	"envoy rate_limit": "envoy/definitions/rate_limit",
	"envoy replaces":   "envoy/definitions/rate_limit/properties/replaces/anyOf/1/items",
}

// The schemas and reading have the same keys.
func TestSchemaKeys(t *testing.T) {
	keys := rulefile.Keys()
	if got, want := slices.Sorted(maps.Keys(keys)), slices.Sorted(maps.Keys(sections)); !slices.Equal(got, want) {
		t.Fatalf("Keys has the sections\n%q, this test\n%q: add the new one to the schema and here", got, want)
	}
	for section, where := range sections {
		kind, pointer, _ := strings.Cut(where, "/")
		s := openSchema(t, kind)
		node, _ := s.look(strings.TrimSuffix("/"+pointer, "/")).(map[string]any)
		properties, _ := node["properties"].(map[string]any)
		if got := slices.Sorted(maps.Keys(properties)); !slices.Equal(got, keys[section]) {
			t.Errorf("%s: the schema has\n%q, reading accepts\n%q", section, got, keys[section])
		}
	}
}

// Objects with properties accept no others, except where users choose the names.
func TestSchemaIsStrict(t *testing.T) {
	open := map[string]bool{
		"rules/definitions/match": true, "rules/definitions/rule/properties/tiers": true,
		"rules/definitions/words": true, "rules/definitions/addresses": true, "rules/definitions/pathPatterns": true, // additions to condition
	}
	for _, kind := range schemaKinds {
		s := openSchema(t, kind)
		s.properties(func(pointer string, _ map[string]any) {
			node, _ := s.look(pointer).(map[string]any)
			part := strings.Contains(pointer, "/dependencies/") || strings.HasSuffix(pointer, "/not") || strings.HasSuffix(pointer, "/oneOf/2") ||
				strings.HasSuffix(pointer, "/longLimit/anyOf/1")
			if node["additionalProperties"] != false && !open[kind+pointer] && !part {
				t.Errorf("%s%s accepts any property", kind, pointer)
			}
		})
	}
}

// jsonOf returns a YAML file as a JSON validator sees it.
func jsonOf(t testing.TB, text []byte) any {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	if len(document.Content) == 0 {
		return nil
	}
	return jsonValue(document.Content[0])
}

func jsonValue(n *yaml.Node) any {
	switch {
	case n.Kind == yaml.AliasNode:
		return jsonValue(n.Alias)
	case n.Kind == yaml.MappingNode:
		m := make(map[string]any)
		for i := 0; i < len(n.Content); i += 2 {
			m[n.Content[i].Value] = jsonValue(n.Content[i+1])
		}
		return m
	case n.Kind == yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			list = append(list, jsonValue(item))
		}
		return list
	}
	var value any
	switch n.Tag {
	case "!!int", "!!float", "!!bool", "!!null":
		if n.Decode(&value) == nil {
			number, err := json.Marshal(value)
			switch {
			case err != nil: // JSON does not have infinity
				return json.Number("1e400")
			case n.Tag != "!!bool" && n.Tag != "!!null":
				return json.Number(number)
			}
			return value
		}
	}
	return n.Value // times are also text in YAML 1.2
}

// kindOf returns the kind of an example file.
func kindOf(name string, text []byte) string {
	switch {
	case strings.HasSuffix(name, "_test.yaml"):
		return "test"
	case bytes.HasPrefix(text, []byte("domain:")) || bytes.Contains(text, []byte("\ndomain:")):
		return "envoy"
	}
	return "rules"
}

func TestSchemaAcceptsExamples(t *testing.T) {
	for _, name := range exampleFiles(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		kind := kindOf(name, text)
		if err := openSchema(t, kind).at(t, "").Validate(jsonOf(t, text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		modeline, _, _ := strings.Cut(string(text), "\n")
		path, ok := strings.CutPrefix(modeline, "# yaml-language-server: $schema=")
		if !ok {
			if kind != "envoy" { // these are as Envoy's users write them
				t.Errorf("%s: the first line does not name the schema", name)
			}
			continue
		}
		if got := filepath.Join(filepath.Dir(name), path); got != filepath.Join(root, "rulefile/schema", kind+".schema.json") {
			t.Errorf("%s: the first line names %s", name, got)
		}
	}
}

// exampleFiles returns all rule and test files of the examples.
func exampleFiles(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "examples/rules/*/*.yaml"))
	if err != nil || len(names) < 26 {
		t.Fatalf("%d examples: %v", len(names), err)
	}
	return names
}

// The schemas accept the files of the transcripts that reading accepts.
func TestSchemaAcceptsWhatReadingAccepts(t *testing.T) {
	for kind, name := range map[string]string{"rules": "good-native.txt", "envoy": "good-envoy.txt"} {
		s := openSchema(t, kind).at(t, "")
		for _, c := range readTranscript(t, name) {
			for _, source := range c.sources {
				if kindOf(source.Name, source.Data) != kind || c.name == senselessKeys {
					continue
				}
				if err := s.Validate(jsonOf(t, source.Data)); err != nil {
					t.Errorf("%s, %s: %v\n%s", name, c.name, err, source.Data)
				}
			}
		}
	}
}

// transcriptCase is a set of files that reading accepts.
type transcriptCase struct {
	name    string
	sources []rulefile.File
}

// readTranscript reads a transcript. A case is "==== case: NAME", a file, further files after "==== file: NAME", and
// "==== result".
func readTranscript(t testing.TB, name string) (all []transcriptCase) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "rulefile/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range strings.Split(string(data), "==== case: ")[1:] {
		var c transcriptCase
		c.name, text, _ = strings.Cut(text, "\n")
		text, _, _ = strings.Cut(text, "==== result\n")
		file := "rules.yaml"
		for i, part := range strings.Split(text, "==== file: ") {
			if i > 0 {
				file, part, _ = strings.Cut(part, "\n")
			}
			c.sources = append(c.sources, rulefile.File{Name: file, Data: []byte(part)})
		}
		all = append(all, c)
	}
	return all
}

// senselessKeys is a case in which the schema is stricter on purpose: Envoy's service accepts its keys everywhere.
const senselessKeys = "misplaced keys of Envoy"

func TestSchemaRefuses(t *testing.T) {
	for kind, snippets := range wrongSnippets {
		s := openSchema(t, kind).at(t, "")
		for _, snippet := range snippets {
			if err := s.Validate(jsonOf(t, []byte(snippet))); err == nil {
				t.Errorf("the schema %s accepts\n%s", kind, snippet)
			}
			// A schema that is stricter than reading would mark valid files in editors.
			if read(snippet) == nil {
				t.Errorf("reading accepts\n%s", snippet)
			}
		}
	}
}

func TestSchemaAccepts(t *testing.T) {
	for kind, snippets := range rightSnippets {
		s := openSchema(t, kind).at(t, "")
		for _, snippet := range snippets {
			if err := s.Validate(jsonOf(t, []byte(snippet))); err != nil {
				t.Errorf("%v\n%s", err, snippet)
			}
			if err := read(snippet); err != nil {
				t.Errorf("%v\n%s", err, snippet)
			}
		}
	}
}

// read reads a rule file.
func read(text string) error {
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "x.yaml", Data: []byte(text)})
	if err == nil {
		_, err = rules.New(cfg)
	}
	return err
}
