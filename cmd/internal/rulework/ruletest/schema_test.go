package ruletest_test

import (
	"bytes"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/ruletest"
	"github.com/sluiceproject/sluice/rulefile"
)

// wrongSnippets are files that both reading and the schema reject.
var wrongSnippets = []string{
	"",
	"tests: {}",
	"rules: [a.yaml]",
	"tests: [{requests: [{request: GET /, expect: allow}]}]",
	"tests: [{name: t}]",
	"tests: [{name: t, requests: []}]",
	"tests: [{name: t, requests: [{request: GET /}]}]",
	"tests: [{name: t, requests: [{expect: allow}]}]",
	"tests: [{name: t, requests: [{request: GET posts, expect: allow}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: pass}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: {allow: -1}}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: {}}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: {reject: 1}}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: allow, at: 5}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: allow, times: 0}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: allow, status: 99}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: allow, hits: 5}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: allow, ip: localhost}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: allow, headers: [X-A]}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: allow, remaining: all}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: allow, cost: 5}]}]",
	"tests: [{name: t, requests: [{request: GET /, descriptor: {domain: d, entries: {a: b}}, expect: allow}]}]",
	"tests: [{name: t, requests: [{descriptor: {domain: d}, expect: allow}]}]",
	"tests: [{name: t, requests: [{descriptor: {domain: d, entries: {a: b}}, expect: allow, headers: {a: b}}]}]",
	"tests: [{name: t, requests: [{request: GET /, reserve: 5, expect: allow}]}]",
	"tests: [{name: t, requests: [{request: GET /, as: a, expect: allow}]}]",
	"tests: [{name: t, requests: [{request: GET /, reserve: 0, as: a, expect: allow}]}]",
	"tests: [{name: t, requests: [{request: GET /, reserve: 5, as: a, expect: allow, forgiven: 1}]}]",
	"tests: [{name: t, requests: [{request: GET /, reserve: 5, as: a, expect: allow}, {settle: {a: -1}}]}]",
	"tests: [{name: t, requests: [{request: GET /, reserve: 5, as: a, expect: allow}, {settle: {}}]}]",
	"tests: [{name: t, requests: [{request: GET /, reserve: 5, as: a, expect: allow}, {settle: {a: 1}, expect: allow}]}]",
	"start: yesterday\ntests: []",
	"tests: []",
	"start: 2026-01-01t00:00:00z\ntests: [{name: t, requests: [{request: GET /, expect: allow}]}]",
	"start: 1970-01-01\ntests: [{name: t, requests: [{request: GET /, expect: allow}]}]",
	"tests: [{name: t, requests: [{request: 'https://', expect: allow}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: allow, at: -1s}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: allow, headers: {X A: b}}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: allow, retry_after: 1s}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: reject, rule: r}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: {allow: 0}}]}]",
	"tests: [{name: t, requests: [{request: GET /, expect: {allow: 1000001}}]}]",
	"tests: [{name: t, requests: [{request: GET /, reserve: 5, as: a, times: 2, expect: allow}]}]",
	"tests: [{name: t, requests: [{descriptor: {domain: '', entries: {a: b}}, expect: allow}]}]",
	"tests: [{name: t, requests: [{descriptor: {domain: d, entries: []}, expect: allow}]}]",
}

// rightSnippets are files that both reading and the schema accept.
var rightSnippets = []string{
	"rules: 5\ntests: [{name: true, requests: [{at: 0ms, request: GET /, expect: allow, rule: 5, delay: 0ms}]}]",
	"tests: [{name: t, requests: [{at: 0, request: GET /, expect: allow}, {at: 0s, request: ' GET  / ', duration: 0h, expect: allow}]}]",
	"tests: [{name: t, requests: [{request: GET /, ip: 'fe80::1%eth0', expect: {deny: 1}, retry_after: 0ms}]}]",
}

func TestSchemaAccepts(t *testing.T) {
	s := testSchema(t)
	for _, snippet := range rightSnippets {
		var document any
		if err := yaml.Unmarshal([]byte(snippet), &document); err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(document); err != nil {
			t.Errorf("%v\n%s", err, snippet)
		}
		if _, err := ruletest.Parse("x_test.yaml", []byte(snippet)); err != nil {
			t.Errorf("%v\n%s", err, snippet)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	s := testSchema(t)
	for _, snippet := range wrongSnippets {
		var document any
		if err := yaml.Unmarshal([]byte(snippet), &document); err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(document); err == nil {
			t.Errorf("the schema accepts\n%s", snippet)
		}
		// A schema that is stricter than reading would mark valid files in editors.
		if _, err := ruletest.Parse("x_test.yaml", []byte(snippet)); err == nil {
			t.Errorf("reading accepts\n%s", snippet)
		}
	}
}

// testSchema returns the schema of test files.
func testSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := rulefile.Schema("test")
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft7)
	if err := compiler.AddResource("file:///test.schema.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := compiler.Compile("file:///test.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
