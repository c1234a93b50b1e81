package examples

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/rules"
)

// Response is a response that a client of an API gets.
type Response struct {
	When    string   `json:"when"`
	Request string   `json:"request"`
	Status  string   `json:"status"`
	Headers []Header `json:"headers"`
	Body    string   `json:"body"`
}

// Header is a header line of a response.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Outcomes of the recorded requests.
const (
	Over        = "over the limit"
	Queued      = "over the limit, queued"
	Delayed     = "over the limit, delayed"
	Unavailable = "while requests cannot be counted"
)

var errNoRequest = errors.New("cannot derive a matching request from its conditions")

// Record returns the responses to a request that the rule matches: one for each outcome over the rule's limit, and one
// for an unavailable store if a rule fails closed. They are recorded under all rules that are not hidden; the limits of
// the others are not reached.
func Record(set *rules.Set, r *rules.Rule) ([]Response, error) {
	cfg := *set.Config()
	cfg.Rules = slices.DeleteFunc(slices.Clone(cfg.Rules), func(r rules.Rule) bool { return r.Hidden })
	for i := range cfg.Rules {
		if cfg.Rules[i].Name == r.Name {
			cfg.Rules[i].EnforceBasisPoints = 0 // as for keys for which it is enforced
		}
	}
	public, err := rules.New(cfg)
	if err != nil {
		return nil, err
	}
	x := &recording{set: public, http: newRequest(&cfg, r), rule: r.Name, matched: rules.MatchResult{Concurrency: true}}
	sent, err := x.http.Request()
	if err != nil {
		return nil, errNoRequest
	}
	if err := public.Match(httplimit.NewRulesRequest(sent, public), &x.matched); err != nil ||
		!slices.ContainsFunc(x.matched.Rules, func(m *rules.Rule) bool { return m.Name == r.Name }) {
		return nil, errNoRequest
	}
	return x.record(r)
}

// recording records the responses to one request.
type recording struct {
	set     *rules.Set
	http    *sample.HTTP
	rule    string // the rule that is over its limit
	matched rules.MatchResult
}

// own returns the takes of the rule.
func (x *recording) own() (own []sluice.Take) {
	for i, r := range x.matched.Rules {
		if r.Name == x.rule {
			own = append(own, x.matched.Takes[i])
		}
	}
	return own
}

// isDenial reports whether status is that of a denial: 429, or the custom status of a rule.
func (x *recording) isDenial(status int) bool {
	return status == http.StatusTooManyRequests ||
		slices.ContainsFunc(x.matched.Rules, func(r *rules.Rule) bool { return r.Denial.Status == status })
}

func (x *recording) record(r *rules.Rule) ([]Response, error) {
	is := func(want int) func(int) bool { return func(status int) bool { return status == want } }
	steps := []struct {
		when   string
		status func(int) bool // reports whether a status is of this outcome
		wanted bool
		send   func(*stack) (*recorder, error)
	}{
		{Queued, is(http.StatusAccepted), r.OnLimit == rules.OnLimitQueue, x.queued},
		{Delayed, is(http.StatusOK), x.isDelayed(), x.delayed},
		{Over, x.isDenial, true, x.over},
		{Unavailable, is(http.StatusServiceUnavailable), slices.ContainsFunc(x.matched.Takes, failsClosed), x.unavailable},
	}
	var all []Response
	for _, step := range steps {
		if !step.wanted {
			continue
		}
		s, err := newStack(x.set)
		if err != nil {
			return nil, err
		}
		w, err := step.send(s)
		if err != nil {
			return nil, err
		}
		if w != nil && step.status(w.status) {
			all = append(all, w.response(step.when, x.http))
		}
	}
	return all, nil
}

// recorder is a response writer that stores the response.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newRecorder() *recorder { return &recorder{header: make(http.Header), status: http.StatusOK} }

// Header returns the header of the response.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader stores the status.
func (w *recorder) WriteHeader(status int) { w.status = status }

func (w *recorder) Write(b []byte) (int, error) { return w.body.Write(b) }

// response leaves out headers that do not concern limits: the length, and the gateway's request ID.
func (w *recorder) response(when string, h *sample.HTTP) Response {
	e := Response{
		When: when, Request: h.Method + " " + h.Target, Headers: []Header{},
		Status: strings.TrimSpace(fmt.Sprintf("%d %s", w.status, http.StatusText(w.status))),
	}
	for _, name := range slices.Sorted(maps.Keys(w.header)) {
		if name != "Content-Length" && name != "X-Request-Id" {
			e.Headers = append(e.Headers, Header{name, strings.Join(w.header[name], ", ")})
		}
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, w.body.Bytes(), "", "  "); err != nil {
		indented = w.body
	}
	e.Body = strings.TrimSpace(indented.String())
	return e
}

// Heading describes when the response is sent, and to which request.
func (e Response) Heading() string {
	return strings.ToUpper(e.When[:1]) + e.When[1:] + ", " + e.Request
}

// String returns the response in HTTP/1.1 format.
func (e Response) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %s\n", e.Status)
	for _, h := range e.Headers {
		fmt.Fprintf(&b, "%s: %s\n", h.Name, h.Value)
	}
	if e.Body != "" {
		fmt.Fprintf(&b, "\n%s\n", e.Body)
	}
	return b.String()
}

// start is the time of the virtual clock at the start of a recording.
var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
