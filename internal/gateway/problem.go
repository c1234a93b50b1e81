package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// refusal is an answer that is not an upstream's.
type refusal struct {
	status     int
	detail     string
	challenges []string      // each a WWW-Authenticate
	retryAfter time.Duration // 0: nobody knows
}

func refuse(status int, detail string) *refusal { return &refusal{status: status, detail: detail} }

// write answers as RFC 9457 has it. The request's id is all that is told of the inside.
func (r *refusal) write(w http.ResponseWriter) {
	h := w.Header()
	body, _ := json.Marshal(struct {
		Type      string `json:"type"`
		Title     string `json:"title"`
		Status    int    `json:"status"`
		Detail    string `json:"detail,omitempty"`
		RequestID string `json:"request_id,omitempty"`
	}{"about:blank", http.StatusText(r.status), r.status, r.detail, h.Get(RequestID)})
	if len(r.challenges) > 0 {
		h["Www-Authenticate"] = r.challenges
	}
	if r.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((r.retryAfter+time.Second-1)/time.Second), 10))
	}
	h.Del("Content-Length")
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(r.status)
	_, _ = w.Write(append(body, '\n'))
}
