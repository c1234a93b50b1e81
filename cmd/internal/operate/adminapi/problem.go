package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/jsonbody"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/problem"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// apiError is an error with an HTTP status, which is sent to the client.
type apiError struct {
	Status int
	Detail string
	Errors []adminmsg.RuleError

	// For 429: the limit of wrong tokens at once, and the time until the next one is accepted.
	limit      int64
	retryAfter time.Duration
}

func (p *apiError) Error() string { return p.Detail }

func problemf(status int, format string, args ...any) *apiError {
	return &apiError{Status: status, Detail: fmt.Sprintf(format, args...)}
}

// problemOf returns the error with the HTTP status for err.
func problemOf(err error) *apiError {
	var p *apiError
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, rules.ErrUnknownRule):
		return problemf(http.StatusNotFound, "%v: GET /v1/rules lists them", err)
	case errors.Is(err, errors.ErrUnsupported):
		return problemf(http.StatusNotImplemented, "%v", err)
	case errors.Is(err, sluice.ErrInvalid):
		return problemf(http.StatusBadRequest, "%v", err)
	case errors.Is(err, sluice.ErrStoreFull):
		return problemf(http.StatusInsufficientStorage, "%v", err)
	case errors.Is(err, sluice.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return problemf(http.StatusServiceUnavailable, "store unavailable, changes are not confirmed: send the request again: %v", err)
	}
	return problemf(http.StatusInternalServerError, "%v", err)
}

func writeProblem(w http.ResponseWriter, err error) {
	e := problemOf(err)
	p := problem.New(e.Status, e.Detail)
	if e.Status == http.StatusTooManyRequests {
		quota.SetProblem(w.Header(), p, e.limit, e.retryAfter)
	}
	if len(e.Errors) > 0 {
		p.Errors, _ = json.Marshal(e.Errors) // never fails
	}
	p.Write(w)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	writeBody(w, status, v)
}

func writeBody(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // does not happen: all bodies can be marshalled
		status, b = http.StatusInternalServerError, []byte(`{}`)
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// readNothing returns an error unless the body of a request is empty or an object without fields.
func readNothing(r *http.Request) error {
	b, err := jsonbody.Read(r.Body, nil, maxBody)
	if err == nil && len(b) == 0 {
		return nil
	}
	return decode(b, err, &struct{}{})
}

// readJSON decodes the body of a request into to, a pointer.
func readJSON(r *http.Request, to any) error {
	b, err := jsonbody.Read(r.Body, nil, maxBody)
	return decode(b, err, to)
}

// decode decodes a body into to. err is the error of reading it.
func decode(b []byte, err error, to any) error {
	if errors.Is(err, jsonbody.ErrTooLarge) {
		bounds.AdminBody.Reached()
		return problemf(http.StatusRequestEntityTooLarge, "body larger than %d bytes: send less in one request", maxBody)
	}
	if err == nil {
		err = jsonbody.Decode(b, to)
	}
	if err != nil {
		return problemf(http.StatusBadRequest, "%v", err)
	}
	return nil
}
