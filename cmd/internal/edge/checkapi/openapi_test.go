package checkapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/cmd/internal/edge/checkapi"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/openapitest"
)

// contract is the OpenAPI file.
type contract struct {
	file     map[string]any
	compiler *jsonschema.Compiler

	mu      sync.Mutex // guards the fields below
	schemas map[string]*jsonschema.Schema
	seen    map[string]bool // "POST /v1/check 200 application/json"
}

const fileName = "openapi.json"

var readContract = sync.OnceValues(func() (*contract, error) {
	var file any
	if err := yaml.Unmarshal(checkapi.OpenAPI, &file); err != nil {
		return nil, err
	}
	b, err := json.Marshal(file) // so that numbers have the types of encoding/json
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	c := &contract{file: doc.(map[string]any), compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}, seen: map[string]bool{}}
	c.compiler.AssertFormat()
	return c, c.compiler.AddResource(fileName, doc)
})

func theContract(t testing.TB) *contract {
	t.Helper()
	c, err := readContract()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// at follows names into the file, resolving references. It returns the path of the result, and nil if there is none.
func (c *contract) at(names ...string) (where string, value map[string]any) {
	where, value = "#", c.file
	for _, name := range names {
		next, _ := value[name].(map[string]any)
		if next == nil {
			return "", nil
		}
		where += "/" + strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
		value = next
		if ref, ok := next["$ref"].(string); ok {
			where, value = c.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
	}
	return where, value
}

// validate validates a value against the schema at a path of the file.
func (c *contract) validate(where string, value any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.schemas[where]
	if s == nil {
		var err error
		if s, err = c.compiler.Compile(fileName + (&url.URL{Fragment: where[1:]}).String()); err != nil {
			return err
		}
		c.schemas[where] = s
	}
	return s.Validate(value)
}

// holds fails the test unless the response matches the file.
func (c *contract) holds(t testing.TB, method, path string, status int, h http.Header, body []byte) {
	t.Helper()
	if status == http.StatusMethodNotAllowed { // for a method that is not in the file
		return
	}
	text := strconv.Itoa(status)
	_, response := c.at("paths", path, strings.ToLower(method), "responses", text)
	if response == nil {
		t.Errorf("%s %s returns %d, which is not in the file: %s", method, path, status, body)
		return
	}
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		t.Errorf("%s %s: Content-Type: %v", method, path, err)
	}
	where, schema := c.at("paths", path, strings.ToLower(method), "responses", text, "content", kind, "schema")
	if schema == nil {
		t.Errorf("%s %s returns %d with %s, which is not in the file", method, path, status, kind)
		return
	}
	c.mu.Lock()
	c.seen[fmt.Sprintln(method, path, status, kind)] = true
	c.mu.Unlock()
	var value any = string(body)
	if kind != "application/yaml" {
		if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(body)); err != nil {
			t.Errorf("%s %s returns invalid JSON: %v\n%s", method, path, err, body)
			return
		}
	}
	if err := c.validate(where, value); err != nil {
		t.Errorf("%s %s returns %d %s\n%v", method, path, status, body, err)
	}
	if undocumented := theFields().Record(method, path, status, kind, body); len(undocumented) > 0 {
		t.Errorf("%s %s responds with fields that the file does not have: %q", method, path, undocumented)
	}
	c.holdHeaders(t, method, path, text, h)
}

// holdHeaders fails the test if a header about limits does not match the file.
func (c *contract) holdHeaders(t testing.TB, method, path, status string, h http.Header) {
	t.Helper()
	_, documented := c.at("paths", path, strings.ToLower(method), "responses", status, "headers")
	names := map[string]string{}
	for name := range documented {
		names[http.CanonicalHeaderKey(name)] = name
	}
	for name, values := range h {
		if name == "Content-Type" || name == "Content-Length" || name == "Date" {
			continue
		}
		where, schema := c.at("paths", path, strings.ToLower(method), "responses", status, "headers", names[name], "schema")
		if schema == nil {
			t.Errorf("%s %s returns %s with the header %s, which is not in the file", method, path, status, name)
			continue
		}
		if err := c.validate(where, values[0]); err != nil {
			t.Errorf("%s %s returns %s with %s: %s: %v", method, path, status, name, values[0], err)
		}
	}
}

// operations returns the operations of the file, such as "POST /v1/check".
func (c *contract) operations() (all []string) {
	for path, methods := range c.file["paths"].(map[string]any) {
		for method := range methods.(map[string]any) {
			all = append(all, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(all)
	return all
}

// An unknown path is a problem with the most similar path.
func TestUnknownPath(t *testing.T) {
	mux := http.NewServeMux()
	checkapi.New(checkapi.Config{}).Register(mux, nil)
	for path, want := range map[string]string{"/nope": "no such path: GET /openapi.yaml lists", "/v1/chek": "did you mean /v1/check?"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusNotFound || w.Header().Get("Content-Type") != "application/problem+json" || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", path, w.Code, w.Body, want)
		}
	}
}

// answers returns all responses in the file, such as "POST /v1/check 200 application/json".
func (c *contract) answers() (all []string) {
	for _, operation := range c.operations() {
		method, path, _ := strings.Cut(operation, " ")
		_, responses := c.at("paths", path, strings.ToLower(method), "responses")
		for status := range responses {
			_, content := c.at("paths", path, strings.ToLower(method), "responses", status, "content")
			for kind := range content {
				all = append(all, fmt.Sprintln(method, path, status, kind))
			}
		}
	}
	slices.Sort(all)
	return all
}

// theFields records the fields of all responses that the tests see.
var theFields = sync.OnceValue(func() *openapitest.Fields {
	f, err := openapitest.New(checkapi.OpenAPI)
	if err != nil {
		panic(err)
	}
	return f
})

// Durations are integers in milliseconds, and their names end in _ms.
func TestDurationsAreMilliseconds(t *testing.T) {
	for _, field := range theFields().WrongUnits("_ms") {
		t.Errorf("%s is a duration: its name must end in _ms", field)
	}
}

// TestMain fails if all tests have run and one of the responses or fields in the file did not occur.
func TestMain(m *testing.M) {
	code := m.Run()
	if c, err := readContract(); err == nil && code == 0 && openapitest.AllTestsRan() {
		for _, field := range theFields().Unseen() {
			fmt.Println("the OpenAPI file has a field that no test has seen in a response:", field)
			code = 1
		}
		for _, answer := range c.answers() {
			if !c.seen[answer] {
				fmt.Print("the OpenAPI file has a response that no test has seen: ", answer)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// The operations of the file are those of the handler.
func TestRoutes(t *testing.T) {
	if want, got := checkapi.Routes(), theContract(t).operations(); !slices.Equal(got, want) {
		t.Errorf("the file has\n%q, the handler\n%q", got, want)
	}
}

// Every example of the file is valid and gets the status in the file.
func TestExamples(t *testing.T) {
	c := theContract(t)
	sent := 0
	for _, operation := range c.operations() {
		method, path, _ := strings.Cut(operation, " ")
		where, body := c.at("paths", path, strings.ToLower(method), "requestBody", "content", "application/json")
		examples, _ := body["examples"].(map[string]any)
		if body != nil && len(examples) == 0 {
			t.Errorf("%s has no examples", operation)
		}
		s := withRules(t, someRules...)
		reservation := s.expect(t, 200, "/v1/reserve", `{"attributes":{"path":"/tokens","headers":{"X-User":"zoe"}},"cost":200}`).Reservation
		for _, name := range slices.Sorted(maps.Keys(examples)) {
			example := examples[name].(map[string]any)
			if err := c.validate(where+"/schema", example["value"]); err != nil {
				t.Errorf("%s: example %s: %v", operation, name, err)
			}
			b, err := json.Marshal(example["value"])
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(string(b), `"RESERVATION"`, `"`+reservation+`"`)
			a := s.ask(t, path, text)
			if want := fmt.Sprint(example["x-status"]); fmt.Sprint(a.status) != want {
				t.Errorf("%s: example %s returns %d, the file has %s: %s", operation, name, a.status, want, a.body)
			}
			sent++
		}
	}
	if sent < 14 {
		t.Errorf("only %d examples were sent", sent)
	}
}

// The file is served in YAML and JSON.
func TestOpenAPIServed(t *testing.T) {
	s := withRules(t, someRules...)
	for _, path := range []string{"/openapi.yaml", "/openapi.json"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		a := s.do(t, r)
		var file map[string]any
		if err := yaml.Unmarshal([]byte(a.body), &file); err != nil || a.status != 200 || file["openapi"] != "3.1.0" {
			t.Errorf("%s: %d, %v\n%.200s", path, a.status, err, a.body)
		}
	}
}
