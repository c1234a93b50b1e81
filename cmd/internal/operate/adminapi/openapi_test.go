package adminapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminapi"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/openapitest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// contract is the OpenAPI file.
type contract struct {
	paths    map[string]map[string]any // operations by path and method
	mu       sync.Mutex                // guards compiler
	compiler *jsonschema.Compiler
}

var theContract = sync.OnceValues(func() (*contract, error) {
	var file any
	if err := yaml.Unmarshal(adminapi.OpenAPI, &file); err != nil {
		return nil, err
	}
	b, err := json.Marshal(file) // also resolves YAML aliases
	if err != nil {
		return nil, err
	}
	var paths struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(b, &paths); err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	c := &contract{paths: paths.Paths, compiler: jsonschema.NewCompiler()}
	c.compiler.AssertFormat()
	return c, c.compiler.AddResource("openapi.json", doc)
})

// theFields records the fields of all responses that the tests see.
var theFields = sync.OnceValue(func() *openapitest.Fields {
	f, err := openapitest.New(adminapi.OpenAPI)
	if err != nil {
		panic(err)
	}
	return f
})

// TestMain fails unless the tests, if all of them have run, have seen every documented field in a response.
func TestMain(m *testing.M) {
	code := redistest.Run(m)
	if code == 0 && openapitest.AllTestsRan() {
		for _, field := range theFields().Unseen() {
			fmt.Println("openapi.yaml has a field that no test has seen in a response:", field)
			code = 1
		}
	}
	os.Exit(code)
}

// Durations are in seconds, and their names end in _seconds.
func TestDurationsAreSeconds(t *testing.T) {
	for _, field := range theFields().WrongUnits("_seconds") {
		t.Errorf("%s is a duration: its name must end in _seconds", field)
	}
}

const rareRules = `
allow:
  - {ip: 10.0.0.1}
rules:
  - {name: user, per: header:X-User, limit: 2/h, tiers: {by: header:X-Plan, pro: 5/h}}
`

// Fields that only some responses have are documented too.
func TestRareFields(t *testing.T) {
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "rules.yaml", Data: []byte(rareRules)})
	if err != nil {
		t.Fatal(err)
	}
	o := newOffice(t, openRedis(t), kept(t))
	if o.set, err = rules.New(cfg); err != nil {
		t.Fatal(err)
	}
	o.spend("user", 1, "header:X-User", "ada")
	o.get(200, "/v1/keys")
	o.post(200, "/v1/peek", `{"rule":"user","key":{"header:X-User":"ada"}}`)
	o.post(200, "/v1/explain", `{"request":{"path":"/","ip":"10.0.0.1"}}`)
	o.get(200, "/v1/queue/item?id=c")
}

// check validates a JSON text against the schema at a path of the file.
func (c *contract) check(place, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	schema, err := c.compiler.Compile("openapi.json#" + place)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

func pointer(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1", "+", "%2B").Replace(p))
	}
	return b.String()
}

// keepsContract fails the test unless the response and, if it was accepted, the request body match the file.
func keepsContract(t testing.TB, method, path, body string, got answer) {
	t.Helper()
	c, err := theContract()
	if err != nil {
		t.Fatal(err)
	}
	path, _, _ = strings.Cut(path, "?")
	operation, known := c.paths[path][strings.ToLower(method)].(map[string]any)
	kind, _, _ := mime.ParseMediaType(got.header.Get("Content-Type"))
	place := pointer("components", "schemas", "Problem")
	switch {
	case strings.HasPrefix(path, "/debug/pprof/"), method == http.MethodHead:
		return
	case got.status >= 400 && kind != "application/problem+json":
		t.Errorf("%s %s: %d has the Content-Type %s", method, path, got.status, kind)
		return
	case got.status >= 400:
	case !known:
		t.Errorf("%s %s returns %d, and the operation is not in openapi.yaml", method, path, got.status)
		return
	case kind != "application/json":
		content := operation["responses"].(map[string]any)["200"].(map[string]any)["content"].(map[string]any)
		if content[kind] == nil {
			t.Errorf("%s %s has the Content-Type %s, which is not in openapi.yaml", method, path, kind)
		}
		return
	default:
		place = pointer("paths", path, strings.ToLower(method), "responses", fmt.Sprint(got.status), "content", "application/json", "schema")
	}
	if undocumented := theFields().Record(method, path, got.status, kind, []byte(got.body)); len(undocumented) > 0 {
		t.Errorf("%s %s responds with fields that openapi.yaml does not have: %q", method, path, undocumented)
	}
	if err := c.check(place, got.body); err != nil {
		t.Errorf("%s %s: the response does not match openapi.yaml: %v\n%s", method, path, err, got.body)
	}
	if got.status == 200 && body != "" && operation["requestBody"] != nil {
		if err := c.check(pointer("paths", path, strings.ToLower(method), "requestBody", "content", "application/json", "schema"), body); err != nil {
			t.Errorf("%s %s: the accepted body does not match openapi.yaml: %v\n%s", method, path, err, body)
		}
	}
}

// The file is served and describes exactly the calls that exist. All tests compare responses with it.
func TestOpenAPI(t *testing.T) {
	o := newOffice(t, memstore.New(), func(c *adminapi.Config) {
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/plain") })
	})
	if got := o.ask("GET", "/openapi.yaml", ""); got.status != 200 || got.body != string(adminapi.OpenAPI) {
		t.Errorf("%d %.100s", got.status, got.body)
	}
	c, err := theContract()
	if err != nil {
		t.Fatal(err)
	}
	for path, operations := range c.paths {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH"} {
			_, described := operations[strings.ToLower(method)]
			if path == "/v1/watch" && described { // its response would not end
				continue
			}
			got := o.ask(method, path, "", "X-Sluice-Admin", "1")
			if there := got.status != 404 && got.status != 405; there != described {
				t.Errorf("%s %s returns %d, described: %v", method, path, got.status, described)
			}
		}
	}
	for _, call := range everything {
		path, _, _ := strings.Cut(call.path, "?")
		if strings.HasPrefix(path, "/v1/") && c.paths[path] == nil {
			t.Errorf("%s is not described", path)
		}
	}
}

// The query parameters of the handlers are those of the file.
func TestParametersOfOpenAPI(t *testing.T) {
	c, err := theContract()
	if err != nil {
		t.Fatal(err)
	}
	for path, operations := range c.paths {
		if !strings.HasPrefix(path, "/v1/") {
			continue
		}
		names := []string{}
		for _, operation := range operations {
			operation, _ := operation.(map[string]any)
			described, _ := operation["parameters"].([]any)
			for _, p := range described {
				names = append(names, p.(map[string]any)["name"].(string))
			}
		}
		o := newOffice(t, memstore.New(), kept(t))
		method := "POST"
		if operations["get"] != nil {
			method = "GET"
		} else if operations["put"] != nil {
			method = "PUT"
		}
		got := o.ask(method, path+"?nosuch=1", "", "X-Sluice-Admin", "1")
		if got.status != 400 || !strings.Contains(got.body, `unknown parameter \"nosuch\"`) {
			t.Errorf("%s %s?nosuch=1: %d %s", method, path, got.status, got.body)
		}
		for _, name := range names {
			if !strings.Contains(got.body, name) {
				t.Errorf("%s: the error does not name the parameter %s: %s", path, name, got.body)
			}
		}
	}
}
