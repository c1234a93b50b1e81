package httplimit

import (
	"net/http"
	"slices"
	"time"

	"github.com/sluiceproject/sluice/internal/cors"
)

// CORSConfig is which responses scripts of other origins may read. AllowedOrigins is required.
type CORSConfig struct {
	// AllowedOrigins are origins as browsers send them ("https://app.example.com"), "https://*.example.com" for all names
	// below example.com, or "*" for every origin.
	AllowedOrigins []string
	AllowedMethods []string // default GET, HEAD, POST, PUT, PATCH and DELETE
	AllowedHeaders []string // request headers that scripts may set; default all
	// ExposedHeaders are response headers that scripts may read. Those about limits are always among them.
	ExposedHeaders []string
	// AllowCredentials lets browsers send cookies and other credentials. It excludes the origin "*".
	AllowCredentials bool
	// MaxAge is how long browsers may cache the response to a preflight, in seconds, rounded up; 0 means 10 minutes, a negative
	// value disables caching.
	MaxAge time.Duration
}

// CORS sets the CORS headers of every response, so that scripts of other origins can read denials too. Preflights, which are
// OPTIONS requests with Origin and Access-Control-Request-Method, are answered with 204: they reach neither the handler
// nor [Skip], and are not counted. The response to an origin that is not allowed has no
// Access-Control-Allow-Origin, so that scripts cannot read it. The handler should
// set none itself: those that it sets replace these. It panics if the configuration is invalid.
//
// Middleware around this one, such as a [Shedder], responds without these headers.
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

// compileCORS makes the policy, whose exposed headers depend on other options.
func (c *config) compileCORS() {
	if c.corsConfig == nil {
		return
	}
	in := *c.corsConfig
	in.ExposedHeaders = slices.Concat(c.headers.Exposed(), in.ExposedHeaders)
	c.cors, _ = cors.New(in) // CORS has checked it
}

// setCORS sets the CORS headers of a response. It reports whether it has responded, to a preflight.
func (c *config) setCORS(w http.ResponseWriter, r *http.Request) (done bool) {
	if cors.IsPreflight(r.Method, r.Header) {
		c.cors.SetPreflightHeaders(w.Header(), r.Header)
		w.WriteHeader(http.StatusNoContent)
		return true
	}
	c.cors.SetHeaders(w.Header(), c.cors.AllowOrigin(r.Header))
	return false
}
