package httplimit

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
)

// Denial is what a denied request is told.
type Denial struct {
	Rules     []*sluice.Rule
	Decisions []sluice.Decision // Decisions[i] is that of Rules[i]
	Tightest  int               // the decision that matters most, see [sluice.Tightest]
	Status    int               // 429, or 503 if nobody could count
}

// RetryAfter is how long until the request may be allowed; never is true if no waiting helps.
func (d *Denial) RetryAfter() (after time.Duration, never bool) {
	t := &d.Decisions[d.Tightest]
	return t.RetryAfter, t.Never
}

// Detail says in a sentence what is used up and when to come again, as the default answer does.
func (d *Denial) Detail() string {
	name, flight := "", false
	if len(d.Rules) == len(d.Decisions) {
		name = fieldText(d.Rules[d.Tightest].Name) + " "
		flight = d.Rules[d.Tightest].Limit.Algorithm == sluice.Concurrency
	}
	t := &d.Decisions[d.Tightest]
	retry := strconv.FormatInt(max(1, ceilSeconds(t.RetryAfter)), 10)
	switch {
	case t.Never:
		return "The request costs more than rate limit " + name + "ever allows at once; retrying will not help."
	case d.Status == http.StatusServiceUnavailable:
		return "Requests cannot be counted at the moment; retry in " + retry + " s."
	}
	if flight {
		return "As many requests as limit " + name + "allows are in flight; retry in " + retry + " s."
	}
	return "Rate limit " + name + "is used up; retry in " + retry + " s."
}

// Problem types of the draft that defines the Ratelimit fields.
const (
	typeQuota    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// problem is a body of RFC 9457.
type problem struct {
	Type         string   `json:"type"`
	Title        string   `json:"title"`
	Status       int      `json:"status"`
	Detail       string   `json:"detail,omitempty"`
	Instance     string   `json:"instance,omitempty"`
	Violated     []string `json:"violated-policies,omitempty"`
	RetryAfterMS int64    `json:"retry_after_ms,omitempty"`
}

// deny answers a denied request. The slices may be reused afterwards.
func (c *config) deny(w http.ResponseWriter, r *http.Request, rules []*sluice.Rule, ps *policies, ds []sluice.Decision) {
	c.setHeaders(w.Header(), r, ps, ds, true)
	denial := denialOf(rules, ds)
	if c.onDenied != nil {
		c.onDenied(w, r, &Denial{slices.Clone(rules), slices.Clone(ds), denial.Tightest, denial.Status})
		return
	}
	status := denial.Status
	p := problem{
		Type: typeQuota, Title: http.StatusText(status), Status: status, Instance: instance(r), Detail: denial.Detail(),
	}
	for i := range ps.each {
		if !ds[i].Allowed {
			p.Violated = append(p.Violated, ps.each[i].name)
		}
	}
	d := &ds[denial.Tightest]
	if status == http.StatusServiceUnavailable && !d.Never {
		p.Type = typeCapacity
	}
	if !d.Never {
		p.RetryAfterMS = max(1, int64((d.RetryAfter+time.Millisecond-1)/time.Millisecond))
	}
	p.write(w)
}

// denialOf sums up decisions of which one denies.
func denialOf(rules []*sluice.Rule, ds []sluice.Decision) Denial {
	d := Denial{rules, ds, sluice.Tightest(ds), http.StatusTooManyRequests}
	if ds[d.Tightest].Source == sluice.SourceClosed {
		d.Status = http.StatusServiceUnavailable
	}
	return d
}

// fail answers with a status, and with a few words if there is something that the caller may know.
func fail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	p := problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
	p.Instance = instance(r)
	p.write(w)
}

func (p *problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil { // strings and numbers always marshal
		body = nil
	}
	h := w.Header()
	h.Del("Content-Length") // of what would have been sent
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

// maxInstance bounds what of a path is sent back.
const maxInstance = 256

// instance is the request's path as a relative reference. The query is left out, since it may hold secrets.
func instance(r *http.Request) string {
	s := r.URL.EscapedPath()
	if strings.HasPrefix(s, "//") { // would be read as another host
		s = "/" + strings.TrimLeft(s, "/")
	}
	if len(s) <= maxInstance {
		return s
	}
	s = s[:maxInstance]
	if i := strings.LastIndexByte(s, '%'); i >= 0 && i > len(s)-3 { // do not cut an escape in two
		s = s[:i]
	}
	return s
}
