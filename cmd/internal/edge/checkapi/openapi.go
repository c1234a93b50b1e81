package checkapi

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var openapi []byte

// openapiJSON is the same file as JSON, made when it is first asked for.
var openapiJSON = sync.OnceValue(func() []byte {
	var file any
	if err := yaml.Unmarshal(openapi, &file); err != nil {
		return nil // the tests read it
	}
	b, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return nil
	}
	return append(b, '\n')
})

func serveYAML(_ *API, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openapi)
}

func serveJSON(_ *API, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapiJSON())
}
