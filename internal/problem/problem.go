// Package problem writes error responses of type application/problem+json (RFC 9457).
package problem

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// MediaType is the Content-Type of a problem.
const MediaType = "application/problem+json"

// Problem types of the draft that defines the Ratelimit fields.
const (
	TypeQuota    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	TypeCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// Problem is the body of an RFC 9457 response. Fields after Status are omitted if they are zero.
type Problem struct {
	Type         string
	Title        string
	Status       int
	Detail       string
	Instance     string
	Violated     []string // policies
	RetryAfterMS int64
	RequestID    string
	Errors       json.RawMessage // JSON array of errors, such as those of a rule file
}

// New returns a Problem of type about:blank, whose title is the text of the status.
func New(status int, detail string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

// Write writes the problem as the response. Without a RequestID it has that of the response.
func (p *Problem) Write(w http.ResponseWriter) {
	if p.RequestID == "" {
		p.RequestID = w.Header().Get("X-Request-Id")
	}
	buf := buffers.Get().(*[]byte)
	body := append(p.AppendJSON((*buf)[:0]), '\n')
	h := w.Header()
	delete(h, "Content-Length") // of the response that the problem replaces
	h["Content-Type"] = contentType
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
	*buf = body
	buffers.Put(buf)
}

var (
	buffers     = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}
	contentType = []string{MediaType}
)

// AppendJSON appends the JSON form. It has the same output as encoding/json without allocations, because an overloaded
// server sends many denials.
func (p *Problem) AppendJSON(b []byte) []byte {
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
	if p.RequestID != "" {
		b = appendJSONString(append(b, `,"request_id":`...), p.RequestID)
	}
	if len(p.Errors) > 0 {
		b = append(append(b, `,"errors":`...), p.Errors...)
	}
	return append(b, '}')
}

// appendJSONString appends a JSON string. Strings with characters to be escaped are left to encoding/json.
func appendJSONString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, _ := json.Marshal(strings.Clone(s)) // the clone keeps s from escaping to the heap; strings always marshal
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// maxInstance is the maximum length of Instance in bytes.
const maxInstance = 256

// Instance returns the request's path as a relative reference, without the query, which may contain secrets.
func Instance(r *http.Request) string {
	s := r.URL.EscapedPath()
	if strings.HasPrefix(s, "//") { // would be a reference to another host
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

// SetAside marks a response that does not come from the upstream. It calls the method SetAside of each wrapped writer that
// has one: an adaptive limit then ignores the response.
func SetAside(w http.ResponseWriter) {
	for w != nil {
		if a, ok := w.(interface{ SetAside() }); ok {
			a.SetAside()
		}
		below, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = below.Unwrap()
	}
}
