package adminapi

import (
	_ "embed"
	"net/http"
)

// OpenAPI describes the API. The tests hold it and the answers to each other.
//
//go:embed openapi.yaml
var OpenAPI []byte

func (a *api) openAPI(w http.ResponseWriter, _ *http.Request) (any, error) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(OpenAPI)
	return nil, nil
}
