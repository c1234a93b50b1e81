package forwardauth

import (
	"net/http"
	"strconv"
	"strings"
)

// What nginx is told besides 403.
const (
	headerStatus = "X-Sluice-Status"
	headerBody   = "X-Sluice-Body"
)

// maxBody bounds the body that is sent as a header: nginx has 4 KiB for all headers unless it is told otherwise.
const maxBody = 2 << 10

// ForNginx has a handler of [New] answer nginx. It is to have a path of its own: the query is the client's where the proxy
// is Caddy, and so are headers, so neither may say how to answer.
func ForNginx(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer403{ResponseWriter: w}
		h.ServeHTTP(a, r)
		a.end()
	})
}

// answer403 makes a 403 of any refusal. Faults of the service and of the proxy stay what they are: nginx answers 500.
type answer403 struct {
	http.ResponseWriter
	status int // that was refused with; 0: none was
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

// end sends the refusal, if it was one.
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
