package httplimit

import (
	"net/http"
	"slices"
	"time"

	"github.com/sluiceproject/sluice/internal/cors"
)

// CORSConfig is a CORS policy: which responses scripts of other origins may read. AllowedOrigins is required.
type CORSConfig struct {
	// AllowedOrigins are origins as browsers send them ("https://app.example.com"), "https://*.example.com" for all names
	// below example.com, or "*" for every origin.
	AllowedOrigins []string
	AllowedMethods []string // default GET, HEAD, POST, PUT, PATCH and DELETE
	AllowedHeaders []string // request headers that scripts may set; default all
	// ExposedHeaders are response headers that scripts may read. The quota headers are always included.
	ExposedHeaders []string
	// AllowCredentials permits cookies and other credentials. It cannot be combined with the origin "*".
	AllowCredentials bool
	// MaxAge is how long browsers may cache the response to a preflight, in seconds, rounded up; 0 means 10 minutes, a negative
	// value disables caching.
	MaxAge time.Duration
}

// CORS sets the CORS headers of every response, denials included. Preflights (OPTIONS requests with the headers Origin
// and Access-Control-Request-Method) get a 204 response: they are not counted and reach neither the handler nor [Skip].
// Responses to an origin that is not allowed have no Access-Control-Allow-Origin, so that scripts cannot read them. The
// handler should not set CORS headers; headers that it sets replace these. CORS panics if the configuration is invalid.
//
// Responses of middleware around this one, such as a [Shedder], do not have these headers.
func CORS(c CORSConfig) Option {
	in := cors.Config(c)
	if in.MaxAge == 0 {
		in.MaxAge = 10 * time.Minute
	}
	if _, err := cors.New(in); err != nil {
		panic("httplimit: CORS: " + err.Error())
	}
	return func(c *config) { c.corsConfig = &in }
}

// compileCORS compiles the policy after all options are set, because the exposed headers depend on them.
func (c *config) compileCORS() {
	if c.corsConfig == nil {
		return
	}
	in := *c.corsConfig
	in.ExposedHeaders = slices.Concat(c.headers.Exposed(), in.ExposedHeaders)
	c.cors, _ = cors.New(in) // cannot fail: CORS has checked it
}

// setCORS sets the CORS headers of a response. It reports whether the request was a preflight and has been responded to.
func (c *config) setCORS(w http.ResponseWriter, r *http.Request) (done bool) {
	if cors.IsPreflight(r.Method, r.Header) {
		c.cors.SetPreflightHeaders(w.Header(), r.Header)
		w.WriteHeader(http.StatusNoContent)
		return true
	}
	c.cors.SetHeaders(w.Header(), c.cors.AllowOrigin(r.Header))
	return false
}
