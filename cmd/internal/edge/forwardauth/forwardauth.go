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

// What the proxy says about the request.
const (
	forwardedMethod = "X-Forwarded-Method"
	forwardedURI    = "X-Forwarded-Uri"
	forwardedHost   = "X-Forwarded-Host"
)

// New makes a handler that answers with the status that the client should get. Requests that rules delay wait at most so
// long; the proxy must have more patience than that, or it takes the wait for a service that is away.
func New(limiter *sluice.Limiter, set func() *rules.Set, maxWait time.Duration) http.Handler {
	// The proxy has the request served, so how it ends is not known here.
	c := admission.Config{Headers: quota.DefaultHeaders(), MaxDelay: maxWait, ChargeAnyStatus: true}
	return &handler{admission.New(limiter, set, c)}
}

type handler struct{ control *admission.Controller }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// An answer is for this request and no other: no cache on the way may keep it.
	w.Header()["Cache-Control"] = noStore
	asked, err := original(r)
	switch {
	case err != nil: // the client is not at fault
		problem.New(http.StatusInternalServerError, "The proxy does not ask as it should: "+err.Error()+".").Write(w)
	case asked.URL == nil:
		problem.New(http.StatusBadRequest, "The path is malformed, or can be read in more than one way.").Write(w)
	default:
		h.decide(w, asked)
	}
}

// decide answers whether a request may pass.
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

// original is the request that the proxy asks about. The one that it asked with must not be used any more.
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
		return nil, fmt.Errorf("%s is %q: the proxy has to set it to the request's method, in place of what the client sent",
			forwardedMethod, method)
	}
	o := r.WithContext(r.Context()) // a copy
	o.Method, o.Host, o.RequestURI, o.URL = method, host, uri, parse(uri)
	// What the client sent is what rules may look at. The body is the proxy's to send on.
	for _, name := range []string{forwardedMethod, forwardedURI, forwardedHost} {
		delete(o.Header, name)
	}
	o.Body, o.ContentLength, o.TransferEncoding = http.NoBody, 0, nil
	return o, nil
}

// one is a header that must be there once.
func one(r *http.Request, name string) (string, error) {
	switch lines := r.Header[name]; len(lines) {
	case 0:
		return "", fmt.Errorf("%s is missing: the proxy has to set it", name)
	case 1:
		return lines[0], nil
	default:
		return "", fmt.Errorf("%s is there %d times: the proxy has to set it in place of what the client sent, "+
			"and not beside it", name, len(lines))
	}
}

// parse reads a URI as a server does that gets it in the first line of a request. It is nil if Go's would refuse it, or
// others might take it for something else: behind the proxy there is any kind of server.
func parse(uri string) *url.URL {
	u, err := url.ParseRequestURI(uri)
	if err != nil || uri[0] != '/' || strings.ContainsAny(uri, "# ") {
		return nil
	}
	return u
}
