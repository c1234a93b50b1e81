package checkapi

import (
	"crypto/x509"
	"errors"
	"mime"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/jsonbody"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/clientip"
	"github.com/sluiceproject/sluice/internal/problem"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/internal/suggest"
	"github.com/sluiceproject/sluice/rules"
)

// Config configures an [API].
type Config struct {
	Limiter     *sluice.Limiter
	Rules       func() *rules.Set // called once per request; a nil set leads to 503
	Descriptors *rls.Decider      // decides descriptors, as for Envoy
	Bounds      rls.Bounds        // of descriptors
	// Secret authenticates reservations. Instances with the same secret settle each other's reservations. Nil means a random
	// secret: only this process can settle its reservations.
	Secret []byte
	// Refunds returns nil if a request is authorized for refunds. A nil function means that none is.
	Refunds func(r *http.Request) *Refusal
}

// Refusal is the error response to an unauthorized request.
type Refusal struct {
	Status     int    // 401 or 429
	Detail     string // cause of the error and how to fix it
	Limit      int64  // for 429: wrong tokens allowed at once
	RetryAfter time.Duration
}

// API is the API that openapi.yaml describes.
type API struct {
	Config
	tokens  tokens
	current atomic.Pointer[perSet]
	calls   sync.Pool // of *call
}

// perSet holds data derived once per rule set.
type perSet struct {
	*rules.Set
	teller  *quota.TakeHeaders
	clients *clientip.Finder
}

// New returns an API.
func New(cfg Config) *API {
	a := &API{Config: cfg, tokens: newTokens(cfg.Secret)}
	bounds := cfg.Bounds.WithDefaults()
	a.calls.New = func() any { return &call{api: a, parser: parser{bounds: bounds}} }
	return a
}

// routes are the routes of the API. A test compares them with the OpenAPI file.
var routes = []struct {
	method, path string
	serve        func(*API, http.ResponseWriter, *http.Request)
}{
	{http.MethodPost, "/v1/check", (*API).serveCheck},
	{http.MethodPost, "/v1/reserve", (*API).serveReserve},
	{http.MethodPost, "/v1/settle", (*API).serveSettle},
	{http.MethodGet, "/openapi.yaml", serveYAML},
	{http.MethodGet, "/openapi.json", serveJSON},
}

// Register registers the handlers of the API with mux, and one for all unknown paths. If around is not nil, it wraps all handlers except those of the
// OpenAPI file.
func (a *API) Register(mux *http.ServeMux, around func(http.Handler) http.Handler) {
	for _, route := range routes {
		var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == route.method || r.Method == http.MethodHead && route.method == http.MethodGet {
				route.serve(a, w, r)
				return
			}
			w.Header().Set("Allow", route.method)
			problem.New(http.StatusMethodNotAllowed, "method "+shown(r.Method)+" not allowed: send "+route.method).Write(w)
		})
		if around != nil && route.method == http.MethodPost {
			h = around(h)
		}
		mux.Handle(route.path, h)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { writeNotFound(w, r.URL.Path) })
}

// writeNotFound writes the response for an unknown path, with the most similar path of the API.
func writeNotFound(w http.ResponseWriter, path string) {
	paths := make([]string, len(routes))
	for i := range routes {
		paths[i] = routes[i].path
	}
	detail := "no such path: GET /openapi.yaml lists the paths of this API"
	if best := suggest.Closest(path, paths); best != "" {
		detail = "no such path: did you mean " + best + "? GET /openapi.yaml lists the paths of this API"
	}
	problem.New(http.StatusNotFound, detail).Write(w)
}

// call is the reusable state of one request.
type call struct {
	api *API
	parser
	body []byte
	set  *perSet

	matched   rules.MatchResult
	decided   rls.Decided
	decisions []sluice.Decision // of matched.Takes
	asked     []int64           // cost of takes that are peeks
	reserves  bool              // the request is a reservation
	out       []byte
}

// keptBytes is the maximum size of buffers that are reused.
const keptBytes = 16 << 10

func (a *API) begin() *call { return a.calls.Get().(*call) }

// recycle clears the call and returns it to the pool.
func (c *call) recycle() {
	for i := range c.checks {
		c.checks[i].clear()
	}
	c.matched.Clear()
	c.reserves = false
	c.set = nil // so that a replaced rule set can be freed
	if cap(c.body) > keptBytes || cap(c.out) > keptBytes || cap(c.text) > keptBytes {
		c.body, c.out, c.text = nil, nil, nil
	}
	clear(c.body) // some of it may be secret
	clear(c.text)
	c.b = nil
	c.api.calls.Put(c)
}

// rejection is an error response.
type rejection struct {
	status int
	detail string

	// For 429: the limit of wrong tokens at once, and the time until the next one is accepted.
	limit      int64
	retryAfter time.Duration
}

var tooLarge = &rejection{status: http.StatusRequestEntityTooLarge, detail: "body larger than 64 KiB: send fewer checks in one request"}

// read reads the body of the request. It returns a rejection if the type is wrong or the body too large or incomplete.
func (c *call) read(r *http.Request) *rejection {
	if p := checkType(r); p != nil {
		return p
	}
	if r.URL.RawQuery != "" {
		return &rejection{status: http.StatusBadRequest, detail: "this API takes no query parameters: write the fields into the body"}
	}
	if r.ContentLength > MaxBody {
		bounds.CheckBody.Reached()
		return tooLarge
	}
	var err error
	c.body, err = jsonbody.Read(r.Body, c.body, MaxBody)
	switch {
	case errors.Is(err, jsonbody.ErrTooLarge):
		bounds.CheckBody.Reached()
		return tooLarge
	case err != nil:
		return &rejection{status: http.StatusBadRequest, detail: "body cannot be read: it is incomplete or took too long"}
	}
	return nil
}

// checkType rejects bodies that are not JSON. Web pages of other origins cannot send JSON without CORS permission.
func checkType(r *http.Request) *rejection {
	if len(r.Header["Content-Encoding"]) > 0 {
		return &rejection{status: http.StatusUnsupportedMediaType, detail: "compressed bodies are not supported: send the body without Content-Encoding"}
	}
	text := r.Header.Get("Content-Type")
	if text == "application/json" {
		return nil
	}
	name, params, err := mime.ParseMediaType(text)
	if charset, has := params["charset"]; err != nil || name != "application/json" || has && !strings.EqualFold(charset, "utf-8") {
		return &rejection{
			status: http.StatusUnsupportedMediaType,
			detail: "Content-Type is not application/json: send Content-Type: application/json (with curl: --json)",
		}
	}
	return nil
}

// setNow returns the rule set in effect.
func (a *API) setNow() (*perSet, *rejection) {
	set := a.Rules()
	if set == nil {
		return nil, &rejection{status: http.StatusServiceUnavailable, detail: "no rules are loaded yet: send the request again later"}
	}
	old := a.current.Load()
	if old != nil && old.Set == set {
		return old, nil
	}
	s := &perSet{set, quota.NewTakeHeaders(quota.DefaultHeaders()), admission.ClientIP(set)}
	a.current.CompareAndSwap(old, s)
	return s, nil
}

// prepare parses a body of checks, authorizes it and gets the rule set.
func (c *call) prepare(r *http.Request, k kind) *rejection {
	if p := c.read(r); p != nil {
		return p
	}
	if f := c.parse(c.body, k); f != nil {
		return &rejection{status: http.StatusBadRequest, detail: f.Error()}
	}
	refunds := false
	for i := range c.checks {
		if err := c.api.authorize(r, c.checks[i].domain); err != nil {
			return &rejection{status: http.StatusForbidden, detail: err.Error()}
		}
		refunds = refunds || c.checks[i].cost < 0
	}
	if refunds {
		if p := c.api.authorizeRefund(r); p != nil {
			return p
		}
	}
	var p *rejection
	c.set, p = c.api.setNow()
	return p
}

// authorize returns an error if the client is not authorized for a domain.
func (a *API) authorize(r *http.Request, domain string) error {
	if domain == "" {
		return nil
	}
	var cert *x509.Certificate
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		cert = r.TLS.VerifiedChains[0][0]
	}
	return a.Descriptors.Authorize(cert, domain)
}

func (a *API) serveCheck(w http.ResponseWriter, r *http.Request) {
	c := a.begin()
	defer c.recycle()
	if p := c.prepare(r, checkBody); p != nil {
		p.write(w)
		return
	}
	if !c.isList {
		a.serveOne(w, r, c)
		return
	}
	c.out = append(c.out[:0], `{"results":[`...)
	for i := range c.checks {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		result, p := c.decide(r.Context(), &c.checks[i])
		switch {
		case p == nil:
			c.answer(&result)
		case p.status < http.StatusInternalServerError: // an invalid check does not affect the others
			c.answer(&checkResult{status: p.status, reason: p.detail})
		default:
			p.write(w)
			return
		}
	}
	c.out = append(c.out, "]}\n"...)
	c.send(w, http.StatusOK)
}

// serveOne responds to a single check or a reservation.
func (a *API) serveOne(w http.ResponseWriter, r *http.Request, c *call) {
	result, p := c.decide(r.Context(), &c.checks[0])
	if p != nil {
		p.write(w)
		return
	}
	if len(result.takes) > 0 {
		c.set.teller.SetFor(w.Header(), r, result.takes, result.decisions, result.status != http.StatusOK)
	}
	c.out = c.out[:0]
	c.answer(&result)
	if c.reserves {
		c.out = c.out[:len(c.out)-len("}")]
		c.reserve(&result)
		c.out = append(c.out, '}')
	}
	c.out = append(c.out, '\n')
	c.send(w, result.status)
}

// jsonType must not be modified.
var jsonType = []string{"application/json"}

// send sends c.out.
func (c *call) send(w http.ResponseWriter, status int) {
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(status)
	_, _ = w.Write(c.out)
}

// write sends the response, with a body as in RFC 9457.
func (p *rejection) write(w http.ResponseWriter) {
	body := problem.New(p.status, p.detail)
	switch p.status {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusTooManyRequests: // because of wrong tokens
		quota.SetProblem(w.Header(), body, p.limit, p.retryAfter)
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="sluice refunds"`)
	}
	body.Write(w)
}
