package forwardauth

import (
	"net/http"
	"strconv"
	"strings"
)

// Headers of the response to nginx, which carry the actual status and body.
const (
	headerStatus = "X-Sluice-Status"
	headerBody   = "X-Sluice-Body"
)

// maxBody is the maximum size of a body that is sent as a header: the default buffer of nginx for all headers is 4 KiB.
const maxBody = 2 << 10

// ForNginx wraps a handler of [New] for nginx. It must be served on a separate path: with Caddy the query and the headers are
// the client's, so that neither may select the form of the response.
func ForNginx(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer403{ResponseWriter: w}
		h.ServeHTTP(a, r)
		a.end()
	})
}

// answer403 is a response writer that converts 4xx and 503 to 403. Errors of the service and of the proxy are not converted:
// nginx responds with 500.
type answer403 struct {
	http.ResponseWriter
	status int // the converted status; 0: not converted
	body   []byte
}

func (a *answer403) WriteHeader(status int) {
	refused := status >= 400 && status < 500 || status == http.StatusServiceUnavailable
	if !refused {
		a.ResponseWriter.WriteHeader(status)
		return
	}
	a.status = status
}

func (a *answer403) Write(b []byte) (int, error) {
	if a.status == 0 {
		return a.ResponseWriter.Write(b)
	}
	a.body = append(a.body, b...)
	return len(b), nil
}

// end sends the response if its status was converted.
func (a *answer403) end() {
	if a.status == 0 {
		return
	}
	h := a.Header()
	h.Set(headerStatus, strconv.Itoa(a.status))
	if len(a.body) <= maxBody {
		h.Set(headerBody, strings.TrimSpace(string(a.body)))
	}
	a.ResponseWriter.WriteHeader(http.StatusForbidden)
	_, _ = a.ResponseWriter.Write(a.body)
}
