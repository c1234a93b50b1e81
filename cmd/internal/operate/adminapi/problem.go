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

// apiError is an error that callers are told.
type apiError struct {
	Status int
	Detail string
	Faults []adminmsg.Fault // of rules

	// Of a 429: what can be spent at once of the limit, and when there is room again.
	limit      int64
	retryAfter time.Duration
}

func (p *apiError) Error() string { return p.Detail }

func problemf(status int, format string, args ...any) *apiError {
	return &apiError{Status: status, Detail: fmt.Sprintf(format, args...)}
}

// problemOf finds out whose fault an error is.
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
		return problemf(http.StatusServiceUnavailable, "the store does not answer, so that nothing is known to have changed: %v", err)
	}
	return problemf(http.StatusInternalServerError, "%v", err)
}

func writeProblem(w http.ResponseWriter, err error) {
	e := problemOf(err)
	p := problem.New(e.Status, e.Detail)
	if e.Status == http.StatusTooManyRequests {
		quota.SetProblem(w.Header(), p, e.limit, e.retryAfter)
	}
	if len(e.Faults) > 0 {
		p.Faults, _ = json.Marshal(e.Faults) // it cannot fail
	}
	p.Write(w)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	writeBody(w, status, v)
}

func writeBody(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // nothing here is of a kind that could fail
		status, b = http.StatusInternalServerError, []byte(`{}`)
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// readJSON reads a body.
func readJSON(r *http.Request, to any) error {
	b, err := jsonbody.Read(r.Body, nil, maxBody)
	if errors.Is(err, jsonbody.ErrTooLarge) {
		bounds.AdminBody.Reached()
		return problemf(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", maxBody)
	}
	if err == nil {
		err = jsonbody.Decode(b, to)
	}
	if err != nil {
		return problemf(http.StatusBadRequest, "%v", err)
	}
	return nil
}
