package adminapi

import (
	_ "embed"
	"net/http"
)

// OpenAPI is the OpenAPI description of the API. The tests check all requests and responses against it.
//
//go:embed openapi.yaml
var OpenAPI []byte

func (a *api) openAPI(w http.ResponseWriter, _ *http.Request) (any, error) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(OpenAPI)
	return nil, nil
}
