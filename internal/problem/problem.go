// Package problem writes application/problem+json (RFC 9457): what Sluice answers instead of what was asked for.
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

// Problem is a body of RFC 9457. What is behind Status is left out if it is zero.
type Problem struct {
	Type         string
	Title        string
	Status       int
	Detail       string
	Instance     string
	Violated     []string // policies
	RetryAfterMS int64
	RequestID    string
	Faults       json.RawMessage // a list of what is wrong, one by one
}

// New describes a status that needs no type of its own.
func New(status int, detail string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

// Write answers with the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	buf := buffers.Get().(*[]byte)
	body := append(p.AppendJSON((*buf)[:0]), '\n')
	h := w.Header()
	delete(h, "Content-Length") // of what would have been sent
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

// AppendJSON writes what encoding/json does, for less: denials are many when servers are busy.
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
	if len(p.Faults) > 0 {
		b = append(append(b, `,"faults":`...), p.Faults...)
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

// Instance is the request's path as a relative reference. The query is left out, since it may hold secrets.
func Instance(r *http.Request) string {
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

// SetAside marks a response as none of an upstream's: writers that learn from responses, by a method of that name, ignore it.
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
