package adminapi

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/explain"
	"github.com/sluiceproject/sluice/rules"
)

// Config is what the API works with. Limiter, Rules, Level, Log and Attempts are required.
type Config struct {
	Limiter *sluice.Limiter
	Rules   func() *rules.Set
	Digest  func() string // of the rules; nil: not known
	// Keyed are rules that are in no file and count by a text, which is called "key": those of protocols whose clients
	// bring their limits.
	Keyed []*sluice.Rule
	Level *slog.LevelVar // of Log
	Log   *slog.Logger
	// Status is what is known of the process; what this package knows is filled in. Nil: nothing.
	Status func(ctx context.Context) adminmsg.Status
	// Reload reads the rules again and tells the digest of those that are live, and whether they changed. Nil: there is
	// nothing to read.
	Reload func() (digest string, changed bool, err error)
	// RestartNeeded returns the settings that have changed in the configuration file and that only a restart applies, or the error
	// that a restart would end with. Nil: none.
	RestartNeeded func() ([]string, error)

	// Counts are what the rules have decided since the start, by their names. Nil: not known.
	Counts func() map[string]adminmsg.Counts
	// Denied and Near are the keys that are denied most and that are closest to it, most first. Nil: not known.
	Denied, Near func(most int) []Top
	// Metrics answers /metrics. Nil: there are none.
	Metrics       http.Handler
	MetricsPublic bool // no token is needed for them

	// Queue has what is kept for later. Nil: nothing is.
	Queue *Queue

	// Token is asked with each request. Nil: no token is needed, so that the listener must be out of strangers' reach.
	Token *Token
	// Attempts limits how often an address may show a wrong token.
	Attempts *sluice.Limiter
	// Hosts are names that the listener is reached by, besides addresses and localhost.
	Hosts []string
	// Ending is closed when the service ends, so that who watches does not hold it up. Nil: never.
	Ending <-chan struct{}
}

// Top is a key that something happens to often. The true count is between Count-Error and Count.
type Top struct {
	Rule, Key    string
	Count, Error int64
}

// api answers.
type api struct {
	Config
	routes     map[string]map[string]handler // by path and method
	started    time.Time
	explain    explain.Explainer
	rejections sampler
	watched    chan struct{} // has an entry for each who watches
	guard      Guard
}

// handler answers a request that may be made. What it returns is the answer, or the problem.
type handler func(w http.ResponseWriter, r *http.Request) (any, error)

const (
	maxBody     = 64 << 10
	maxWatchers = 16
)

// New returns the API's handler.
func New(cfg Config) http.Handler {
	a := &api{
		Config: cfg, started: time.Now(), explain: explain.Explainer{Limiter: cfg.Limiter, Live: true},
		watched: make(chan struct{}, maxWatchers),
		guard:   Guard{Token: cfg.Token, Attempts: cfg.Attempts, Setting: "admin.token_file"},
	}
	get := func(h handler) map[string]handler { return map[string]handler{http.MethodGet: h} }
	post := func(h handler) map[string]handler { return map[string]handler{http.MethodPost: h} }
	a.routes = map[string]map[string]handler{
		"/v1/status":    get(a.status),
		"/v1/rules":     get(a.listRules),
		"/v1/explain":   post(a.explainRequest),
		"/v1/peek":      post(a.peek),
		"/v1/reset":     post(a.reset),
		resetRulePath:   post(a.resetRule),
		"/v1/block":     post(a.block),
		"/v1/suspend":   post(a.suspend),
		"/v1/resume":    post(a.resume),
		"/v1/top":       get(a.top),
		"/v1/keys":      get(a.keys),
		"/v1/reload":    post(a.reload),
		"/v1/log-level": {http.MethodPut: a.logLevel},
		"/v1/watch":     get(a.watch),
		"/metrics":      get(a.metrics),
		"/openapi.yaml": get(a.openAPI),
	}
	maps.Copy(a.routes, a.queueRoutes())
	return a
}

// ServeHTTP refuses what may not be asked, and answers the rest.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if err := a.admit(r); err != nil {
		a.reject(w, r, err)
		return
	}
	answer, err := a.route(w, r)
	switch {
	case err != nil:
		writeProblem(w, err)
	case answer != nil:
		writeJSON(w, http.StatusOK, answer)
	}
}

func (a *api) route(w http.ResponseWriter, r *http.Request) (any, error) {
	if strings.HasPrefix(r.URL.Path, pprofPath) {
		return a.pprof(w, r)
	}
	methods, ok := a.routes[r.URL.Path]
	if !ok {
		return nil, problemf(http.StatusNotFound, "there is nothing here: see docs/api.md, or ask for /v1/status")
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if h := methods[method]; h != nil {
		if method != http.MethodGet {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		}
		return h(w, r)
	}
	var allowed []string
	for m := range methods {
		allowed = append(allowed, m)
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return nil, problemf(http.StatusMethodNotAllowed, "%s takes %s", r.URL.Path, strings.Join(allowed, " and "))
}

func (a *api) metrics(w http.ResponseWriter, r *http.Request) (any, error) {
	if a.Metrics == nil {
		return nil, problemf(http.StatusNotFound, "there are no metrics: set metrics.enabled: true in the configuration")
	}
	a.Metrics.ServeHTTP(w, r)
	return nil, nil
}
