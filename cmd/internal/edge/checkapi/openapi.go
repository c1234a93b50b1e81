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

// openapiJSON returns the file as JSON, converted on the first call.
var openapiJSON = sync.OnceValue(func() []byte {
	var file any
	if err := yaml.Unmarshal(openapi, &file); err != nil {
		return nil // does not happen: the tests parse the file
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
