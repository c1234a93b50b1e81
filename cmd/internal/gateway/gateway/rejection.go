package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice/internal/problem"
)

// refusal is an answer that is not an upstream's.
type refusal struct {
	status     int
	detail     string
	challenges []string      // each a WWW-Authenticate
	retryAfter time.Duration // 0: nobody knows
}

func refuse(status int, detail string) *refusal { return &refusal{status: status, detail: detail} }

// writeTo answers the request, unless its client has left: then it is no outage, and only the status is remembered.
func (r *refusal) writeTo(w http.ResponseWriter, to *http.Request) {
	if r.status >= 500 && clientLeft(to) {
		r.status = statusGone
	}
	if r.status == statusGone {
		w.WriteHeader(statusGone)
		return
	}
	r.write(w)
}

// clientLeft reports whether the request was cancelled because its client left.
func clientLeft(r *http.Request) bool {
	ctx := r.Context()
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// write answers as RFC 9457 has it. The request's id is all that is told of the inside.
func (r *refusal) write(w http.ResponseWriter) {
	h := w.Header()
	if len(r.challenges) > 0 {
		h["Www-Authenticate"] = r.challenges
	}
	if r.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((r.retryAfter+time.Second-1)/time.Second), 10))
	}
	h.Set("Cache-Control", "no-store")
	p := problem.New(r.status, r.detail)
	p.RequestID = h.Get(RequestID)
	p.Write(w)
}
