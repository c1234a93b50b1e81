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
	"github.com/sluiceproject/sluice/internal/suggest"
	"github.com/sluiceproject/sluice/rules"
)

// Config configures the API. Limiter, Rules, Level, Log and Attempts are required.
type Config struct {
	Limiter *sluice.Limiter
	Rules   func() *rules.Set
	Digest  func() string // digest of the rule set; nil means unknown
	// Keyed are rules that are in no file and count per one string, named "key": those of protocols whose clients send
	// their limits.
	Keyed []*sluice.Rule
	Level *slog.LevelVar // of Log
	Log   *slog.Logger
	// Status returns the status of the process, to which this package adds its own fields. Nil means an empty status.
	Status func(ctx context.Context) adminmsg.Status
	// Reload reloads the rule files. It returns the digest of the rule set in effect and whether it changed. Nil means that
	// there are no rule files.
	Reload func() (digest string, changed bool, err error)
	// RestartNeeded returns the settings changed in the configuration file that take effect after a restart, or the error
	// that would fail a restart. Nil means none.
	RestartNeeded func() ([]string, error)

	// Counts returns the decisions of each limit since the start, by its name. Nil means unknown.
	Counts func() map[string]adminmsg.Counts
	// Denied and Near return up to limit keys: those denied most often and those closest to their limit, highest count
	// first. Nil means unknown.
	Denied, Near func(limit int) []Top
	// Verdicts returns the verdict on each rule, by its name. Nil means that rules are not judged.
	Verdicts func() map[string]adminmsg.Verdict
	// Metrics serves /metrics. Nil means 404.
	Metrics       http.Handler
	MetricsPublic bool // /metrics needs no token

	// Queue is the durable queue. Nil means that there is none.
	Queue *Queue

	// Token is required with each request. Nil means that none is; the listener must then not be reachable by untrusted
	// clients.
	Token *Token
	// Attempts limits wrong tokens per client address.
	Attempts *sluice.Limiter
	// Hosts are the allowed names in the Host header, in addition to IP addresses and localhost.
	Hosts []string
	// Ending is closed when the service shuts down, to end watches, which would delay it. Nil means never.
	Ending <-chan struct{}
}

// Top is one of the top keys. Its true count is between Count-Error and Count.
type Top struct {
	Rule, Key    string
	Count, Error int64
}

// api is the handler of the API.
type api struct {
	Config
	routes     map[string]map[string]handler // by path and method
	started    time.Time
	explain    explain.Explainer
	rejections sampler
	watched    chan struct{} // holds an element per active watch
	guard      Guard
}

// handler serves an authorized request. It returns the response body or an error; nil and nil if it wrote the response itself.
type handler func(w http.ResponseWriter, r *http.Request) (any, error)

const (
	maxBody     = 64 << 10 // bytes
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

// ServeHTTP implements http.Handler. It rejects unauthorized requests.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if err := a.admit(r); err != nil {
		a.reject(w, r, err)
		return
	}
	body, err := a.route(w, r)
	switch {
	case err != nil:
		writeProblem(w, err)
	case body != nil:
		writeJSON(w, http.StatusOK, body)
	}
}

func (a *api) route(w http.ResponseWriter, r *http.Request) (any, error) {
	if strings.HasPrefix(r.URL.Path, pprofPath) {
		return a.pprof(w, r)
	}
	methods, ok := a.routes[r.URL.Path]
	if !ok {
		return nil, a.noSuchPath(r.URL.Path)
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if h := methods[method]; h != nil {
		if err := checkParameters(r); err != nil {
			return nil, err
		}
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
	return nil, problemf(http.StatusMethodNotAllowed, "method not allowed: %s supports %s", r.URL.Path, strings.Join(allowed, " and "))
}

// noSuchPath returns the error for an unknown path, with the most similar one.
func (a *api) noSuchPath(path string) error {
	const list = "GET /openapi.yaml lists the paths of this API"
	if path == "/v1/queue/replay" { // before the first release
		return problemf(http.StatusNotFound, "no such path: renamed: write /v1/queue/requeue")
	}
	if best := suggest.Closest(path, slices.Sorted(maps.Keys(a.routes))); best != "" {
		return problemf(http.StatusNotFound, "no such path: did you mean %s? %s", best, list)
	}
	return problemf(http.StatusNotFound, "no such path: %s", list)
}

func (a *api) metrics(w http.ResponseWriter, r *http.Request) (any, error) {
	if a.Metrics == nil {
		return nil, problemf(http.StatusNotFound, "metrics are disabled: set metrics.enabled: true in the configuration")
	}
	a.Metrics.ServeHTTP(w, r)
	return nil, nil
}
