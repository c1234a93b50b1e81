package describe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/rules"
)

// publicHeader is a header that callers get.
type publicHeader struct {
	Name    string `json:"name"`
	On      string `json:"on"` // which answers have it
	Meaning string `json:"meaning"`
}

var publicHeaders = []publicHeader{
	{"X-Ratelimit-Limit", "all", "how much a window, or a burst, holds"},
	{"X-Ratelimit-Remaining", "all", "how much of it is left"},
	{"X-Ratelimit-Reset", "all", "seconds until all of it is there again; on 429, until a retry can succeed"},
	{"X-Ratelimit-Retry-After", "429", "seconds until a retry can succeed"},
	{"Retry-After", "429", "the same"},
	{"Ratelimit-Policy", "all", "the limits that apply: name, quota (q) and window in seconds (w)"},
	{"Ratelimit", "all", "of each: name, what remains (r) and for how many seconds (t)"},
}

// exampleResponse is what a denied caller gets.
type exampleResponse struct {
	Request string        `json:"request"`
	Status  string        `json:"status"`
	Headers []exampleLine `json:"headers"`
	Body    string        `json:"body"`
}

type exampleLine struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// newExample has the middleware deny a request to the first of the rules, so that the example is what callers get and
// not what somebody believes they get.
func newExample(public []*rules.Rule) exampleResponse {
	limit, name, method, path := sluice.PerMinute(100), "api", http.MethodGet, "/"
	for _, r := range public {
		if len(r.Limits) == 0 || r.Limits[0].Unlimited || r.Limits[0].DenyAll {
			continue
		}
		limit, name = r.Limits[0].Limit, r.Name
		method, path = exampleRequest(&r.Match)
		break
	}
	built, err := sluice.NewRule(sluice.Rule{Name: name, Limit: limit})
	if err != nil {
		return exampleResponse{Headers: []exampleLine{}}
	}
	retry := limit.Window / time.Duration(max(1, limit.Count))
	if limit.Window == 0 { // a calendar's
		retry = time.Hour
	}
	quota := built.Limit.Max()
	d := sluice.Decision{Limit: quota, RetryAfter: max(retry, time.Second), ResetAfter: limit.Window}
	w := &recorder{header: make(http.Header)}
	r := &http.Request{Method: method, URL: &url.URL{Path: path}, Header: make(http.Header)}
	httplimit.WriteDenial(w, r, []*sluice.Rule{built}, []sluice.Decision{d})
	return w.example(method, path)
}

// exampleRequest is a request that a condition matches, as far as one can tell without values.
func exampleRequest(m *rules.Match) (method, path string) {
	method, path = http.MethodGet, "/"
	for i := range m.Predicates {
		p := &m.Predicates[i]
		switch {
		case p.Not:
		case p.Ref.Name == "method" && len(p.Values) > 0:
			method = strings.ToUpper(p.Values[0])
		case p.Ref.Name == "path" && len(p.Patterns) > 0:
			segments := strings.Split(p.Patterns[0], "/")
			for j, s := range segments {
				if strings.HasPrefix(s, "{") || strings.Contains(s, "*") {
					segments[j] = "7"
				}
			}
			path = strings.Join(segments, "/")
		}
	}
	return method, path
}

// recorder keeps a response.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header, WriteHeader and Write make it a response writer.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader keeps the status.
func (w *recorder) WriteHeader(status int) { w.status = status }

func (w *recorder) Write(b []byte) (int, error) { return w.body.Write(b) }

func (w *recorder) example(method, path string) exampleResponse {
	e := exampleResponse{
		Request: method + " " + path, Headers: []exampleLine{},
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)),
	}
	for _, name := range slices.Sorted(maps.Keys(w.header)) {
		if name != "Content-Length" {
			e.Headers = append(e.Headers, exampleLine{name, strings.Join(w.header[name], ", ")})
		}
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, w.body.Bytes(), "", "  "); err != nil {
		indented = w.body
	}
	e.Body = strings.TrimSpace(indented.String())
	return e
}

// String writes the response as it is on the wire.
func (e *exampleResponse) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %s\n", e.Status)
	for _, h := range e.Headers {
		fmt.Fprintf(&b, "%s: %s\n", h.Name, h.Value)
	}
	fmt.Fprintf(&b, "\n%s\n", e.Body)
	return b.String()
}
