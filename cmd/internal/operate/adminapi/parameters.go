package adminapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/internal/suggest"
)

// parametersOf are the query parameters of the paths that have some. A test compares them with the OpenAPI file.
var parametersOf = map[string][]string{
	"/v1/top":        {"by", "limit"},
	"/v1/keys":       {"rule", "page_token", "limit"},
	"/v1/watch":      {"interval"},
	"/v1/queue":      {"state", "page_token", "limit"},
	"/v1/queue/item": {"id"},
}

// renamedParameters are the names of parameters before the first release. Delete them with it.
var renamedParameters = map[string]string{"after": "page_token", "next": "page_token", "n": "limit", "most": "limit"}

// checkParameters returns an error for query parameters that would be ignored: those that are unknown, given twice or invalid.
// Other paths than those of the API itself have parameters of their own.
func checkParameters(r *http.Request) error {
	if !strings.HasPrefix(r.URL.Path, "/v1/") || r.URL.RawQuery == "" {
		return nil
	}
	given, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return problemf(http.StatusBadRequest, "the query of the URL is invalid: write NAME=VALUE, with special characters escaped as in %%20")
	}
	known := parametersOf[r.URL.Path]
	for name, values := range given {
		switch {
		case !slices.Contains(known, name):
			return unknownParameter(r.URL.Path, name, known)
		case len(values) > 1:
			return problemf(http.StatusBadRequest, "%s: given twice: remove one", name)
		}
	}
	return nil
}

func unknownParameter(path, name string, known []string) error {
	if len(known) == 0 {
		return problemf(http.StatusBadRequest, "unknown parameter %.40q: %s takes none", name, path)
	}
	best := renamedParameters[name]
	if !slices.Contains(known, best) {
		best = suggest.ClosestOrLonger(name, known)
	}
	all := strings.Join(known, ", ")
	if best != "" {
		return problemf(http.StatusBadRequest, "unknown parameter %q: write %s; the parameters are %s", name, best, all)
	}
	return problemf(http.StatusBadRequest, "unknown parameter %.40q: the parameters are %s", name, all)
}
