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

// compileCORS compiles the policy of a route. It exposes all headers that the gateway itself sets.
func (r *Route) compileCORS() (err error) {
	if len(r.CORS.AllowedOrigins) == 0 {
		return nil
	}
	headers, c := quota.DefaultHeaders(), r.CORS
	c.ExposedHeaders = slices.Concat(headers.Exposed(), []string{"Location", RequestID}, c.ExposedHeaders)
	r.cors, err = cors.New(c)
	return err
}

// setCORS prepares the CORS headers of the response. They are set when the response starts, to replace those of the upstream,
// but computed now, because the request may have lost its Origin by then.
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
	x.response.cors = nil // do not set the headers of other responses
	problem.SetAside(w)
	w.WriteHeader(http.StatusNoContent)
}

// internalCORS returns the CORS policy for paths below InternalPath, where clients query the status of queued requests: the
// policy of a route of the host that allows the origin, because a response of such a route contained the path. It returns nil
// if no route of the host has a policy.
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

// isBelow reports whether the host of a route matches: it is equal, a wildcard such as "*.example.com", or empty for any.
func isBelow(route, host string) bool {
	parent, isWildcard := strings.CutPrefix(route, "*")
	return route == "" || route == host || isWildcard && strings.HasSuffix(host, parent)
}
