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
	"github.com/sluiceproject/sluice/rules"
)

// Config is what an [API] is made of.
type Config struct {
	Limiter     *sluice.Limiter
	Rules       func() *rules.Set // asked once a request; nil answers 503
	Descriptors *rls.Decider      // decides about descriptors, as for Envoy
	Bounds      rls.Bounds        // of descriptors
	// Secret authenticates reservations. Processes that have the same settle each other's. Nil: a random one, so that
	// reservations end with the process.
	Secret []byte
	// Refunds returns why a request may not give back what was charged, or nil if it may. Nil: none may.
	Refunds func(r *http.Request) *Refusal
}

// Refusal is why a request is not authorized.
type Refusal struct {
	Status     int    // 401 or 429
	Detail     string // what to do
	Limit      int64  // of a 429: how many wrong tokens may come at once
	RetryAfter time.Duration
}

// API answers the requests that openapi.yaml describes.
type API struct {
	Config
	tokens  tokens
	current atomic.Pointer[perSet]
	calls   sync.Pool // of *call
}

// perSet is what is made once for a set of rules, and goes away with it.
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

// routes are what there is. The OpenAPI file has the same, which a test makes sure of.
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

// Register has a mux answer by the API. What is put around the handlers sees all that is asked but for the OpenAPI file;
// nil is nothing.
func (a *API) Register(mux *http.ServeMux, around func(http.Handler) http.Handler) {
	for _, route := range routes {
		var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == route.method || r.Method == http.MethodHead && route.method == http.MethodGet {
				route.serve(a, w, r)
				return
			}
			w.Header().Set("Allow", route.method)
			problem.New(http.StatusMethodNotAllowed, "send "+route.method+", not "+shown(r.Method)).Write(w)
		})
		if around != nil && route.method == http.MethodPost {
			h = around(h)
		}
		mux.Handle(route.path, h)
	}
}

// call is the memory of one request.
type call struct {
	api *API
	parser
	body []byte
	set  *perSet

	matched   rules.MatchResult
	decided   rls.Decided
	decisions []sluice.Decision // of matched.Takes
	asked     []int64           // what takes that only look would have cost
	reserves  bool              // what is charged will be settled
	out       []byte
}

// keptBytes is the largest buffer that a call keeps for the next.
const keptBytes = 16 << 10

func (a *API) begin() *call { return a.calls.Get().(*call) }

// recycle returns the call for another request to use.
func (c *call) recycle() {
	for i := range c.checks {
		c.checks[i].clear()
	}
	c.matched.Clear()
	c.reserves = false
	c.set = nil // or one that was replaced would be kept
	if cap(c.body) > keptBytes || cap(c.out) > keptBytes || cap(c.text) > keptBytes {
		c.body, c.out, c.text = nil, nil, nil
	}
	clear(c.body) // some of it may be secret
	clear(c.text)
	c.b = nil
	c.api.calls.Put(c)
}

// rejection is a response that is none: a status and a few words.
type rejection struct {
	status int
	detail string

	// Of a 429: what can be spent at once of the limit, and when there is room again.
	limit      int64
	retryAfter time.Duration
}

var tooLarge = &rejection{status: http.StatusRequestEntityTooLarge, detail: "the body has more than 64 KiB: send fewer checks at once"}

// read reads the request's body, or says what is wrong with it.
func (c *call) read(r *http.Request) *rejection {
	if p := checkType(r); p != nil {
		return p
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
		return &rejection{status: http.StatusBadRequest, detail: "the body cannot be read: it ends too early, or took too long"}
	}
	return nil
}

// checkType wants JSON. A web page of another origin cannot send that without being asked whether it may.
func checkType(r *http.Request) *rejection {
	if len(r.Header["Content-Encoding"]) > 0 {
		return &rejection{status: http.StatusUnsupportedMediaType, detail: "the body is compressed: send it without Content-Encoding"}
	}
	text := r.Header.Get("Content-Type")
	if text == "application/json" {
		return nil
	}
	name, params, err := mime.ParseMediaType(text)
	if charset, has := params["charset"]; err != nil || name != "application/json" || has && !strings.EqualFold(charset, "utf-8") {
		return &rejection{
			status: http.StatusUnsupportedMediaType,
			detail: "the body is not said to be JSON: send Content-Type: application/json (with curl: --json)",
		}
	}
	return nil
}

// setNow is the set of rules that is in force.
func (a *API) setNow() (*perSet, *rejection) {
	set := a.Rules()
	if set == nil {
		return nil, &rejection{status: http.StatusServiceUnavailable, detail: "there are no rules yet"}
	}
	old := a.current.Load()
	if old != nil && old.Set == set {
		return old, nil
	}
	s := &perSet{set, quota.NewTakeHeaders(quota.DefaultHeaders()), admission.ClientIP(set)}
	a.current.CompareAndSwap(old, s)
	return s, nil
}

// prepare reads a body of checks and finds the rules.
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

// authorize tells why a client may not ask about a domain.
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
	c.out = append(c.out[:0], `{"answers":[`...)
	for i := range c.checks {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		result, p := c.decide(r.Context(), &c.checks[i])
		switch {
		case p == nil:
			c.answer(&result)
		case p.status < http.StatusInternalServerError: // this one makes no sense, which is no reason to leave others unanswered
			c.answer(&checkResult{status: p.status, reason: p.detail})
		default:
			p.write(w)
			return
		}
	}
	c.out = append(c.out, "]}\n"...)
	c.send(w, http.StatusOK)
}

// serveOne answers a single check, or a reservation.
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

// jsonType is never changed.
var jsonType = []string{"application/json"}

// send sends what was written.
func (c *call) send(w http.ResponseWriter, status int) {
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(status)
	_, _ = w.Write(c.out)
}

// write writes a body of RFC 9457.
func (p *rejection) write(w http.ResponseWriter) {
	body := problem.New(p.status, p.detail)
	switch p.status {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusTooManyRequests: // of wrong tokens
		quota.SetProblem(w.Header(), body, p.limit, p.retryAfter)
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="sluice refunds"`)
	}
	body.Write(w)
}
