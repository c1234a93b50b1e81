package schematest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/ruletest"
	"github.com/sluiceproject/sluice/rulefile"
)

// format is a kind of file with a schema.
type format struct {
	kind     string // kind of the schema
	generate func(generator) *tree
	read     func(text string) error
	meanings []meaning // errors that the schema cannot express
	isOther  func(root *tree) bool
}

var formats = []format{
	{kind: "rules", generate: generator.rules, read: read, meanings: ruleMeanings},
	{kind: "test", generate: generator.tests, meanings: testMeanings, read: func(text string) error {
		_, err := ruletest.Parse("x_test.yaml", []byte(text))
		return err
	}},
	{kind: "service", generate: generator.service, meanings: serviceMeanings, read: func(text string) error {
		if len(text) < 100 { // empty, or a rule file
			_, err := config.Read("sluice.yaml", []byte(text))
			return err
		}
		_, err := config.Parse("sluice.yaml", []byte(text), os.LookupEnv)
		return err
	}},
	{kind: "envoy", generate: generator.envoy, read: read, meanings: envoyMeanings, isOther: func(root *tree) bool {
		return root.field("domain") == nil // a rule file of the other format
	}},
}

// sample is a generated document with the result of reading it.
type sample struct {
	text    string
	value   any      // the document as a validator sees it
	errs    []string // errors of reading, without positions
	has     []string // pointers to the schema properties that it contains
	changed []string // those whose values were changed
}

// samples generates documents: 25 % follow the grammar, the others are changed in one place. It prefers documents with
// properties that few documents had so far.
func (f format) samples(t testing.TB, s *testSchema, seed uint64, count, wanted int) (all []sample) {
	t.Helper()
	g, known, sound := generator{rand.New(rand.NewPCG(seed, 1)), new(int)}, make(map[string]any), false
	pointers, whole := s.reachable(), s.parts()[""]
	right, wrong := make(map[string]int), make(map[string]int)
	for len(all) < count {
		often, change := right, len(all)%4 > 0
		if change {
			often = wrong
		}
		root, at := f.rare(g, whole, pointers, often, wanted)
		var changed *tree
		if change {
			changed = f.change(g, root, at)
		}
		d := sample{text: root.yaml()}
		if d.value, sound = root.value(known); !sound || f.isOther != nil && f.isOther(root) {
			continue // not YAML, so that a validator sees nothing
		}
		if err := f.read(d.text); err != nil {
			for _, line := range strings.Split(err.Error(), "\n") {
				d.errs = append(d.errs, place.ReplaceAllString(line, ""))
			}
		}
		whole.visit(root, func(pointer string, value *tree) {
			d.has = append(d.has, pointer)
			if value == changed {
				d.changed = append(d.changed, pointer)
			}
		})
		d.count(right, wrong)
		all = append(all, d)
	}
	return all
}

// count adds a document to the number of accepted documents per property, or of rejected documents in which the
// property was changed.
func (d *sample) count(right, wrong map[string]int) {
	if len(d.errs) > 0 {
		for _, pointer := range d.changed {
			wrong[pointer]++
		}
		return
	}
	for _, pointer := range slices.Compact(slices.Sorted(slices.Values(d.has))) {
		right[pointer]++
	}
}

// rare generates a document with a property that too few documents have had, or another document if that takes too
// long. It returns the value of its rarest property, or nil if there are enough of all.
func (f format) rare(g generator, whole *part, pointers []string, often map[string]int, wanted int) (root, at *tree) {
	if !slices.ContainsFunc(pointers, func(pointer string) bool { return often[pointer] < wanted }) {
		return f.generate(g), nil
	}
	for range 12 {
		least := -1
		root = f.generate(g)
		whole.visit(root, func(pointer string, value *tree) {
			if n := often[pointer]; least < 0 || n < least {
				at, least = value, n
			}
		})
		if least >= 0 && least < wanted {
			break
		}
	}
	return root, at
}

// change changes a document at a value, or anywhere if at is nil, and returns the changed value.
func (f format) change(g generator, root, at *tree) *tree {
	if at == nil {
		var nodes []*tree
		root.walk(func(n *tree) { nodes = append(nodes, n) })
		at = nodes[g.IntN(len(nodes))]
	} else if g.IntN(3) > 0 { // where any text is valid, only this is wrong
		return otherKind(g, at, nil)
	}
	return mutations[g.IntN(len(mutations))](g, at, f.generate(g))
}

// place matches the position before the message of an error.
var place = regexp.MustCompile(`^(sluice\.yaml|x\.yaml|x_test\.yaml)[0-9:]*: (rule "(\\.|[^"\\])*": )?`)

// unlike matches the parts that differ between messages about the same error.
var unlike = regexp.MustCompile(`"(\\.|[^"\\])*"|[0-9]+`)

// part is a subschema, as documents are compared with it.
type part struct {
	pointer     string
	also        []*part // of allOf, anyOf and oneOf
	properties  map[string]*part
	items, rest *part // of lists; of keys that are not properties
}

// parts returns the subschemas by their pointers. The whole schema has the pointer "".
func (s *testSchema) parts() map[string]*part {
	all := make(map[string]*part)
	var build func(pointer string, schema any) *part
	build = func(pointer string, schema any) *part {
		at, _ := schema.(map[string]any)
		if ref, ok := at["$ref"].(string); ok {
			pointer = strings.TrimPrefix(ref, "#")
			at, _ = s.look(pointer).(map[string]any)
		}
		if at == nil || all[pointer] != nil {
			return all[pointer]
		}
		p := &part{pointer: pointer, properties: make(map[string]*part)}
		all[pointer] = p
		for _, word := range []string{"allOf", "anyOf", "oneOf"} {
			some, _ := at[word].([]any)
			for i := range some {
				p.also = append(p.also, build(fmt.Sprintf("%s/%s/%d", pointer, word, i), some[i]))
			}
		}
		properties, _ := at["properties"].(map[string]any)
		for key, property := range properties {
			below := pointer + "/properties/" + key
			p.properties[key] = &part{pointer: below, also: []*part{build(below, property)}}
		}
		p.rest, p.items = build(pointer+"/additionalProperties", at["additionalProperties"]), build(pointer+"/items", at["items"])
		return p
	}
	build("", s.doc)
	return all
}

// visit calls f for every value of a document that belongs to a property of the schema, with a pointer to the property.
func (p *part) visit(n *tree, f func(pointer string, value *tree)) {
	if p == nil {
		return
	}
	for _, one := range p.also {
		one.visit(n, f)
	}
	for _, field := range n.fields {
		if below := p.properties[keyText(field.key)]; below != nil {
			f(below.pointer, field.value)
			below.visit(field.value, f)
		} else {
			p.rest.visit(field.value, f)
		}
	}
	for _, item := range n.items {
		p.items.visit(item, f)
	}
}

// reachable returns pointers to the properties that visit finds.
func (s *testSchema) reachable() []string {
	all := make(map[string]bool)
	for _, p := range s.parts() {
		for _, below := range p.properties {
			all[below.pointer] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// classes are the meanings of a format with compiled patterns.
type classes struct {
	meanings []meaning
	patterns []*regexp.Regexp
}

func (f format) classes() classes {
	c := classes{meanings: f.meanings}
	for _, m := range f.meanings {
		c.patterns = append(c.patterns, regexp.MustCompile(m.pattern))
	}
	return c
}

// of returns the class of a message about a document, or -1 if the schema ought to find the error.
func (c classes) of(message, text string) int {
	for i, p := range c.patterns {
		if p.MatchString(message) && strings.Contains(text, c.meanings[i].with) {
			return i
		}
	}
	return -1
}

// disagreement describes how a schema and reading differ about a document, or returns "".
func disagreement(compiled *jsonschema.Schema, c classes, d *sample) string {
	err := compiled.Validate(d.value)
	switch {
	case len(d.errs) == 0 && err != nil && !misplaced(err):
		return "reading accepts what the schema rejects: " + err.Error()
	case len(d.errs) > 0 && err == nil:
		what := ""
		for _, message := range d.errs {
			switch class := c.of(message, d.text); {
			case class >= 0 && c.meanings[class] == duplicateKey:
				return ""
			case class < 0 && what == "":
				what = "the schema accepts what reading rejects: " + message
			}
		}
		return what
	}
	return ""
}

// misplaced reports whether a schema rejects a key of Envoy's format because the key has no effect at its place. The
// schema is stricter than reading there on purpose: see senselessKeys.
func misplaced(err error) bool {
	var e *jsonschema.ValidationError
	if !errors.As(err, &e) {
		return false
	}
	more, ok := e.ErrorKind.(*kind.AdditionalProperties)
	_, pointer, isEnvoy := strings.Cut(e.SchemaURL, "envoy.schema.json#")
	if here := envoyKeys["envoy"+pointer]; ok && isEnvoy && here != nil {
		return !slices.ContainsFunc(more.Properties, func(key string) bool { return slices.Contains(here, key) })
	}
	return slices.ContainsFunc(e.Causes, func(cause *jsonschema.ValidationError) bool { return misplaced(cause) })
}

// envoyKeys lists the keys of Envoy's format by the pointer of their schema.
var envoyKeys = func() map[string][]string {
	all := make(map[string][]string)
	for section, where := range sections {
		if strings.HasPrefix(section, "envoy ") {
			all[where] = rulefile.Keys()[section]
		}
	}
	return all
}()

// The schemas and reading agree on random documents: a schema accepts every document that reading accepts, and rejects
// every document that reading rejects, except for the classes of errors that a schema cannot express. The documents
// detect a schema in which a property is missing, has another type, or accepts anything.
func TestSchemaAgreesWithReading(t *testing.T) {
	soak := os.Getenv("SLUICE_SOAK") != ""
	// wanted is the minimum number of accepted documents per property, and of documents rejected because of it.
	count, wanted, seed, every := 1_000, 2, uint64(1), 60
	if soak {
		count, wanted, seed, every = 30_000, 20, rand.Uint64(), 1
	}
	t.Setenv("SLUICE_TEST_NUMBER", "7777")
	t.Setenv("SLUICE_TEST_WORD", "vword")
	t.Setenv("SLUICE_TEST_FRACTION", "0.7777")
	for _, f := range formats {
		t.Run(f.kind, func(t *testing.T) {
			s := openSchema(t, f.kind)
			all := f.samples(t, s, seed, count, wanted)
			f.agrees(t, s, all)
			if f.reaches(t, s, all, wanted, soak); t.Failed() {
				t.Logf("the seed is %d", seed)
			}
			f.finds(t, s, all, every)
		})
	}
}

// agrees checks that the schema and reading agree on documents.
func (f format) agrees(t *testing.T, s *testSchema, all []sample) {
	t.Helper()
	compiled, c := s.at(t, ""), f.classes()
	seen := make(map[string]bool)
	for i := range all {
		msg := disagreement(compiled, c, &all[i])
		if like := unlike.ReplaceAllString(msg, ""); msg != "" && !seen[like] { // the same message occurs many times
			seen[like] = true
			t.Errorf("%s\n%s", msg, all[i].text)
		}
	}
}

// reaches checks that the documents contain every property, right and wrong, and, if there are many, every class of
// errors.
func (f format) reaches(t *testing.T, s *testSchema, all []sample, wanted int, many bool) {
	t.Helper()
	c := f.classes()
	right, wrong, used := make(map[string]int), make(map[string]int), make([]int, len(c.patterns))
	for i := range all {
		all[i].count(right, wrong)
		for _, message := range all[i].errs {
			if !many {
				break
			}
			if class := c.of(message, all[i].text); class >= 0 {
				used[class]++
			}
		}
	}
	for _, pointer := range s.reachable() {
		if right[pointer] < wanted || wrong[pointer] < wanted {
			t.Errorf("%s is in %d documents that are accepted, and changed in %d that are not: want at least %d of each",
				pointer, right[pointer], wrong[pointer], wanted)
		}
	}
	for i, n := range used {
		if n == 0 && many {
			t.Errorf("no document has an error of the class %q: remove it, or generate one", f.meanings[i].pattern)
		}
	}
}

// addition matches the schema of conditions on some attributes, which few documents contain deep inside; of the
// condition that equals that on a declared attribute; and of the rate, which the limit itself has conditions on.
var addition = regexp.MustCompile(`^/definitions/(words|addresses|pathPatterns)/|^/definitions/match/properties/basic_user$|^/definitions/longLimit/properties/rate$`)

// finds checks that the documents detect wrong schemas. It changes one of every so many properties.
func (f format) finds(t *testing.T, s *testSchema, all []sample, every int) {
	t.Helper()
	c := f.classes()
	for i, pointer := range s.reachable() {
		if i%every != 0 {
			continue
		}
		end := strings.LastIndexByte(pointer, '/')
		properties, name := s.look(pointer[:end]).(map[string]any), pointer[end+1:]
		was := properties[name]
		for what, now := range map[string]any{"is missing": nil, "has another type": map[string]any{"type": "null"}, "takes anything": true} {
			if properties[name] = now; now == nil {
				delete(properties, name)
			}
			changed := s.again(t)
			if !slices.ContainsFunc(all, func(d sample) bool {
				return slices.Contains(d.has, pointer) && disagreement(changed, c, &d) != ""
			}) && (what == "has another type" || !addition.MatchString(pointer)) {
				t.Errorf("no document finds that %s %s", pointer, what)
			}
		}
		properties[name] = was
	}
}

// again compiles the current schema.
func (s *testSchema) again(t testing.TB) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7)
	if err := c.AddResource(s.name, s.doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile(s.name)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}
