package httplimit

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// Detail says in a sentence why the request was denied and when to come again, as the default answer does.
func (d *Denial) Detail() string {
	name, flight := "", false
	if len(d.Rules) == len(d.Decisions) {
		name = fieldText(d.Rules[d.Tightest].Name) + " "
		flight = d.Rules[d.Tightest].Limit.Algorithm == sluice.Concurrency
	}
	t := &d.Decisions[d.Tightest]
	before, after := "Rate limit ", "is used up; retry in "
	switch {
	case t.Never:
		return "The request costs more than rate limit " + name + "ever allows at once; retrying will not help."
	case d.Status == http.StatusServiceUnavailable:
		before, name, after = "Requests cannot be counted at the moment; retry in ", "", ""
	case t.Blocked:
		before, after = "The caller is blocked under rate limit ", "and may retry in "
		if name == "" {
			before = "The caller is blocked "
		}
	case flight:
		before, after = "As many requests as limit ", "allows are in flight; retry in "
	}
	var room [160]byte
	b := append(append(append(room[:0], before...), name...), after...)
	return string(append(strconv.AppendInt(b, max(1, ceilSeconds(t.RetryAfter)), 10), " s."...))
}

// Problem types of the draft that defines the Ratelimit fields.
const (
	typeQuota    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// problem is a body of RFC 9457.
type problem struct {
	Type         string
	Title        string
	Status       int
	Detail       string // each of these is left out if there is none
	Instance     string
	Violated     []string // policies
	RetryAfterMS int64
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
	var room [4]string
	p := problem{
		Type: typeQuota, Title: http.StatusText(status), Status: status, Instance: instance(r), Detail: denial.Detail(), Violated: room[:0],
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
	buf := problems.Get().(*[]byte)
	body := append(p.appendJSON((*buf)[:0]), '\n')
	h := w.Header()
	delete(h, "Content-Length") // of what would have been sent
	h["Content-Type"] = problemType
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
	*buf = body
	problems.Put(buf)
}

var (
	problems    = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}
	problemType = []string{"application/problem+json"}
)

// appendJSON writes what encoding/json does, for less: denials are many when servers are busy.
func (p *problem) appendJSON(b []byte) []byte {
	b = appendJSONString(append(b, `{"type":`...), p.Type)
	b = appendJSONString(append(b, `,"title":`...), p.Title)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(p.Status), 10)
	if p.Detail != "" {
		b = appendJSONString(append(b, `,"detail":`...), p.Detail)
	}
	if p.Instance != "" {
		b = appendJSONString(append(b, `,"instance":`...), p.Instance)
	}
	for i, name := range p.Violated {
		if i == 0 {
			b = append(b, `,"violated-policies":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendJSONString(b, name)
	}
	if len(p.Violated) > 0 {
		b = append(b, ']')
	}
	if p.RetryAfterMS != 0 {
		b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), p.RetryAfterMS, 10)
	}
	return append(b, '}')
}

// appendJSONString leaves what is not plain to encoding/json.
func appendJSONString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, _ := json.Marshal(strings.Clone(s)) // the original stays where it is; strings always marshal
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
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
