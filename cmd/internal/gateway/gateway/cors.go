package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/internal/cors"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/problem"
	"github.com/sluiceproject/sluice/internal/quota"
)

// compileCORS makes the policy of a route. Scripts can read all that the gateway itself sends.
func (r *Route) compileCORS() (err error) {
	if len(r.CORS.AllowedOrigins) == 0 {
		return nil
	}
	headers, c := quota.DefaultHeaders(), r.CORS
	c.ExposedHeaders = slices.Concat(headers.Exposed(), []string{"Location", RequestID}, c.ExposedHeaders)
	r.cors, err = cors.New(c)
	return err
}

// setCORS prepares the CORS headers of the response, which are set when it begins: those of an upstream are replaced, and
// by then the request may have lost its Origin.
func (x *RequestContext) setCORS(p *cors.Policy, r *http.Request) {
	if p == nil {
		return
	}
	x.response.cors, x.response.allowOrigin = p, p.AllowOrigin(r.Header)
	x.preflight = cors.IsPreflight(r.Method, r.Header)
	x.Exempt = x.Exempt || x.preflight
}

// answerPreflight responds to a preflight, for its route.
func (x *RequestContext) answerPreflight(w http.ResponseWriter, r *http.Request) {
	x.response.cors.SetPreflightHeaders(w.Header(), r.Header)
	x.response.cors = nil // the headers of other responses
	problem.SetAside(w)
	w.WriteHeader(http.StatusNoContent)
}

// internalCORS returns the CORS policy below InternalPath, where queued requests are looked up: that of a route of the host
// that allows the origin, since the response that named the path was of one. It is nil if no route of the host has one.
func (t *routeTable) internalCORS(r *http.Request) (p *cors.Policy) {
	host := match.CanonicalHost(r.Host)
	for _, route := range t.routes {
		if route.cors == nil || !isBelow(match.CanonicalHost(route.Host), host) {
			continue
		}
		if p = route.cors; p.AllowOrigin(r.Header) != nil {
			return p
		}
	}
	return p
}

// isBelow reports whether a host is one that a route names: itself, "*.example.com" or none for any.
func isBelow(route, host string) bool {
	parent, isWildcard := strings.CutPrefix(route, "*")
	return route == "" || route == host || isWildcard && strings.HasSuffix(host, parent)
}
