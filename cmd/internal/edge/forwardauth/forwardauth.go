package forwardauth

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/problem"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// Headers of the subrequest that describe the request.
const (
	forwardedMethod = "X-Forwarded-Method"
	forwardedURI    = "X-Forwarded-Uri"
	forwardedHost   = "X-Forwarded-Host"
)

// New returns a handler that responds with the status for the client. Rules delay a request by at most maxDelay; the timeout
// of the proxy must be longer, because it would otherwise treat the delay as a failure of the service.
func New(limiter *sluice.Limiter, set func() *rules.Set, maxDelay time.Duration) http.Handler {
	// The proxy forwards the request, so that its outcome is unknown here.
	c := admission.Config{Headers: quota.DefaultHeaders(), MaxDelay: maxDelay, ChargeAnyStatus: true}
	return &handler{admission.New(limiter, set, c)}
}

type handler struct{ control *admission.Controller }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A decision applies to one request and must not be cached.
	w.Header()["Cache-Control"] = noStore
	asked, err := original(r)
	switch {
	case err != nil: // not an error of the client
		problem.New(http.StatusInternalServerError, "The proxy is misconfigured: "+err.Error()+".").Write(w)
	case asked.URL == nil:
		problem.New(http.StatusBadRequest, "The path is ambiguous or malformed.").Write(w)
	default:
		h.decide(w, asked)
	}
}

// decide decides a request and writes the response.
func (h *handler) decide(w http.ResponseWriter, asked *http.Request) {
	a, err := h.control.Admit(w, asked, nil, admission.Try{})
	switch {
	case err != nil:
		admission.WriteError(w, asked, err, nil)
		return
	case a.Outcome == admission.Rejected:
		admission.WriteRejection(w, asked)
	case a.Outcome == admission.Denied:
		a.WriteDenial(w, asked)
	default:
		a.SetHeaders(w.Header(), asked)
		w.WriteHeader(http.StatusNoContent)
	}
	a.Done(asked.Context(), http.StatusNoContent)
}

var noStore = []string{"no-store"}

// original returns the request of the client. The subrequest r must not be used afterwards.
func original(r *http.Request) (*http.Request, error) {
	method, err := one(r, forwardedMethod)
	if err != nil {
		return nil, err
	}
	uri, err := one(r, forwardedURI)
	if err != nil {
		return nil, err
	}
	host, err := one(r, forwardedHost)
	if err != nil {
		return nil, err
	}
	if method == "" || strings.ContainsAny(method, ", \t") {
		return nil, fmt.Errorf("%s is %q: the proxy must set it to the request's method and remove the client's value",
			forwardedMethod, method)
	}
	o := r.WithContext(r.Context()) // a copy
	o.Method, o.Host, o.RequestURI, o.URL = method, host, uri, parse(uri)
	// Rules see only headers of the client. The proxy forwards the body.
	for _, name := range []string{forwardedMethod, forwardedURI, forwardedHost} {
		delete(o.Header, name)
	}
	o.Body, o.ContentLength, o.TransferEncoding = http.NoBody, 0, nil
	return o, nil
}

// one returns the value of a header that must occur exactly once.
func one(r *http.Request, name string) (string, error) {
	switch lines := r.Header[name]; len(lines) {
	case 0:
		return "", fmt.Errorf("%s is missing: the proxy must set it", name)
	case 1:
		return lines[0], nil
	default:
		return "", fmt.Errorf("%s occurs %d times: the proxy must replace the client's value instead of adding one",
			name, len(lines))
	}
}

// parse parses a request target as Go's server does. It returns nil if Go's server would reject it, or if another server
// might parse it differently, because the application behind the proxy may be any kind of server.
func parse(uri string) *url.URL {
	u, err := url.ParseRequestURI(uri)
	if err != nil || uri[0] != '/' || strings.ContainsAny(uri, "# ") {
		return nil
	}
	return u
}
