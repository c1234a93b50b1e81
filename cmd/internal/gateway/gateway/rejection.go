package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice/internal/problem"
	"github.com/sluiceproject/sluice/internal/quota"
)

// rejection is a response of the gateway itself, a problem document.
type rejection struct {
	status     int
	detail     string
	challenges []string      // values of WWW-Authenticate
	retryAfter time.Duration // 0: unknown
	limit      int64         // of a 429: the X-Ratelimit-Limit, unless the headers have it
	rule       string        // of a 429: the rule; empty: none
	denied     []string      // of a 429: names of the policies that denied the request
}

func reject(status int, detail string) *rejection { return &rejection{status: status, detail: detail} }

// writeTo writes the response. If the client has disconnected, it only records 499 instead of a 5xx, because it is no outage.
func (r *rejection) writeTo(w http.ResponseWriter, to *http.Request) {
	if r.status >= 500 && clientClosed(to) {
		r.status = statusClientClosed
	}
	if r.status == statusClientClosed {
		w.WriteHeader(statusClientClosed)
		return
	}
	r.write(w, to)
}

// statusClientClosed is the status of a request whose client has disconnected.
const statusClientClosed = 499

// clientClosed reports whether the request was cancelled because its client has disconnected.
func clientClosed(r *http.Request) bool {
	ctx := r.Context()
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// noStore is the Cache-Control of all responses of the gateway itself. It must not be modified.
var noStore = []string{"no-store"}

// write writes a problem document (RFC 9457). It contains no internal details except the ID of the request.
func (r *rejection) write(w http.ResponseWriter, to *http.Request) {
	h := w.Header()
	if len(r.challenges) > 0 {
		h["Www-Authenticate"] = r.challenges
	}
	h["Cache-Control"] = noStore
	p := problem.New(r.status, r.detail)
	p.Instance = problem.Instance(to)
	switch {
	case r.status == http.StatusTooManyRequests:
		quota.SetProblem(h, p, r.limit, r.retryAfter)
		quota.KeepItems(h, r.denied) // the headers were set for a queued request
		if p.Violated = r.denied; len(p.Violated) == 0 && r.rule != "" {
			p.Violated = []string{r.rule}
		}
	case r.retryAfter > 0:
		h.Set("Retry-After", strconv.FormatInt(quota.CeilSeconds(r.retryAfter), 10))
	}
	p.Write(w)
}

// toSentence returns a text with a capital letter and a full stop.
func toSentence(s string) string {
	if s == "" {
		return s
	}
	if c := s[0]; c >= 'a' && c <= 'z' {
		s = string(c-'a'+'A') + s[1:]
	}
	if s[len(s)-1] != '.' {
		s += "."
	}
	return s
}
