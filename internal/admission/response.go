package admission

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/problem"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// WriteDenial writes the status and body of a denial. The headers have been set. The slices may be reused afterwards.
func WriteDenial(w http.ResponseWriter, r *http.Request, rules []*sluice.Rule, ps *quota.Policies, ds []sluice.Decision) {
	var room [4]string
	p := denialProblem(r, rules, ps, ds, room[:0])
	p.Write(w)
}

// denialProblem returns the default body of a denial. room is memory for the names of the violated policies.
func denialProblem(r *http.Request, rules []*sluice.Rule, ps *quota.Policies, ds []sluice.Decision, room []string) problem.Problem {
	denial := quota.DenialOf(rules, ds)
	status := denial.Status
	p := problem.Problem{
		Type: problem.TypeQuota, Title: http.StatusText(status), Status: status, Instance: problem.Instance(r),
		Detail: denial.Detail(), Violated: ps.AppendDenied(room, ds),
	}
	d := &ds[denial.MostRestrictive]
	if status == http.StatusServiceUnavailable && !d.ExceedsLimit {
		p.Type = problem.TypeCapacity
	}
	if !d.ExceedsLimit {
		p.RetryAfterMS = max(1, int64((d.RetryAfter+time.Millisecond-1)/time.Millisecond))
	}
	return p
}

// WriteRejection writes the response to a request that the rule set rejects.
func WriteRejection(w http.ResponseWriter, r *http.Request) {
	fail(w, r, http.StatusForbidden, "The rules of the server reject this request.")
}

// WriteError writes the response to a request for which no decision could be made. If the client is still connected and
// instead is not nil, it calls instead.
func WriteError(w http.ResponseWriter, r *http.Request, err error, instead func(http.ResponseWriter, *http.Request, error)) {
	switch ctx := r.Context(); {
	case clientClosed(ctx): // not an outage
		w.WriteHeader(statusClientClosed)
		return
	case ctx.Err() != nil:
		// The client may still be connected after a deadline of the server, and returning without a response would be a 200.
		fail(w, r, http.StatusServiceUnavailable, "")
		return
	case instead != nil:
		instead(w, r, err)
		return
	}
	for i := range requestErrors {
		if f := &requestErrors[i]; errors.Is(err, f.err) {
			fail(w, r, f.status, f.detail)
			return
		}
	}
	fail(w, r, http.StatusInternalServerError, "")
}

// fail writes a problem with a status and an optional detail.
func fail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	p := problem.New(status, detail)
	p.Instance = problem.Instance(r)
	p.Write(w)
}

// statusClientClosed is the status that proxies log for a client that disconnected before the response.
const statusClientClosed = 499

// clientClosed reports whether the request was cancelled, as net/http does when a client disconnects, and not by a deadline.
func clientClosed(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// ErrAmbiguousKey is wrapped by the error for a key that occurs more than once in a request, or in a form that applications
// parse differently.
var ErrAmbiguousKey = errors.New("httplimit: ambiguous key: given more than once or in a form that applications parse differently")

// requestErrors maps errors of the request to responses. The details name no header and no rule, because a client that tries
// to bypass a limit should not learn how it is counted.
var requestErrors = []struct {
	err    error
	status int
	detail string
}{
	{ErrAmbiguousKey, http.StatusBadRequest, ambiguousDetail},
	{rules.ErrAmbiguous, http.StatusBadRequest, ambiguousDetail},
	{rules.ErrAmbiguousPath, http.StatusBadRequest, "The path is ambiguous or malformed."},
	{rules.ErrInvalidCost, http.StatusBadRequest, "The cost of the request is not an integer of at least 1."},
	{rules.ErrAttributeTooLong, http.StatusRequestHeaderFieldsTooLarge, "A value used for rate limiting is too long."},
}

const ambiguousDetail = "A value used for rate limiting is given more than once or is ambiguous."
