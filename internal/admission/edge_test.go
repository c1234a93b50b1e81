package admission_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// edge is a handler with a queue, like the gateway.
type edge struct {
	control *admission.Controller
	queue   func(http.ResponseWriter, *admission.QueueTarget)
	seen    []observed
}

// observed is the outcome of a request that was not allowed at once.
type observed struct {
	Denied, Kept bool
	Rule         string
	Delay        time.Duration
}

func newEdge(
	l *sluice.Limiter, set func() *rules.Set, hasPending func(rule, key string) bool,
	queue func(http.ResponseWriter, *admission.QueueTarget),
) *edge {
	c := admission.Config{Queues: true, HasPending: hasPending, Headers: quota.NewHeaders(quota.XRateLimit|quota.IETF, false)}
	return &edge{control: admission.New(l, set, c), queue: queue}
}

func (e *edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a := e.try(w, r, admission.Try{}); a != nil {
		a.WriteDenial(w, r)
		a.Done(r.Context(), http.StatusTooManyRequests)
	}
}

// again tries to deliver a queued request, and returns the denial if a limit denies it.
func (e *edge) again(w http.ResponseWriter, r *http.Request) *admission.Admission {
	a := e.try(w, r, admission.Try{Retried: true})
	if a != nil {
		a.Done(r.Context(), http.StatusTooManyRequests)
	}
	return a
}

func (e *edge) try(w http.ResponseWriter, r *http.Request, try admission.Try) *admission.Admission {
	a, err := e.control.Admit(w, r, nil, try)
	if err != nil {
		admission.WriteError(w, r, err, nil)
		return nil
	}
	if o := (observed{a.Outcome == admission.Denied, a.Outcome == admission.Queued, a.Rule, a.Waited}); o != (observed{}) {
		e.seen = append(e.seen, o)
	}
	switch a.Outcome {
	case admission.Denied:
		return &a
	case admission.Queued:
		a.Done(r.Context(), http.StatusAccepted)
		e.queue(w, a.Queue)
	default:
		a.SetHeaders(w.Header(), r)
		a.Serve(ok, w, r)
	}
	return nil
}

func limiter(store sluice.Store) *sluice.Limiter { return sluice.Must(sluice.NewWithRules(store, nil)) }

// ok is a handler that responds with 200.
var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

func serve(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func request() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "192.0.2.1:4711"
	return r
}

func refs(names ...string) (all []rules.Ref) {
	for _, n := range names {
		all = append(all, rules.Ref{Name: n})
	}
	return all
}

// where returns a condition on the path.
func where(path string) rules.Match {
	return rules.Match{Predicates: []rules.Predicate{{Ref: rules.Ref{Name: "path"}, Patterns: []string{path}}}}
}

func limits(all ...sluice.Limit) (ls []rules.Limit) {
	for _, l := range all {
		ls = append(ls, rules.Limit{Limit: l})
	}
	return ls
}

func always(c rules.Config) func() *rules.Set {
	set := sluice.Must(rules.New(c))
	return func() *rules.Set { return set }
}
