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

// denialProblem is the default body of a denial. It names violated policies in room.
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

// WriteRejection answers a request that the rules do not accept.
func WriteRejection(w http.ResponseWriter, r *http.Request) {
	fail(w, r, http.StatusForbidden, "The server does not accept this request.")
}

// WriteError answers a request that was not decided. If the client still waits and instead is not nil, that does.
func WriteError(w http.ResponseWriter, r *http.Request, err error, instead func(http.ResponseWriter, *http.Request, error)) {
	switch ctx := r.Context(); {
	case clientLeft(ctx): // which is no outage
		w.WriteHeader(statusClientLeft)
		return
	case ctx.Err() != nil:
		// A deadline may have been put on a client that still waits, and returning without a word would be a 200.
		fail(w, r, http.StatusServiceUnavailable, "")
		return
	case instead != nil:
		instead(w, r, err)
		return
	}
	for i := range callerFaults {
		if f := &callerFaults[i]; errors.Is(err, f.err) {
			fail(w, r, f.status, f.detail)
			return
		}
	}
	fail(w, r, http.StatusInternalServerError, "")
}

// fail answers with a status, and with a few words if there is something that the caller may know.
func fail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	p := problem.New(status, detail)
	p.Instance = problem.Instance(r)
	p.Write(w)
}

// statusClientLeft is what proxies say of a client that did not wait for the answer.
const statusClientLeft = 499

// clientLeft reports whether the request was cancelled, as net/http does when a client leaves, and has not run out of time.
func clientLeft(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// ErrAmbiguousKey is wrapped by the error of a key that a request gives more than once, or so that it may be read
// differently.
var ErrAmbiguousKey = errors.New("httplimit: what the request is limited by is given more than once or may be read differently")

// callerFaults are errors that are the caller's. What the caller is told names no header and no rule: who tries to get
// around a limit should not be told how it counts.
var callerFaults = []struct {
	err    error
	status int
	detail string
}{
	{ErrAmbiguousKey, http.StatusBadRequest, "Something that requests are limited by is given more than once, or may be read differently."},
	{
		rules.ErrAmbiguous, http.StatusBadRequest,
		"Something that requests are limited by is given more than once, or may be read differently.",
	},
	{rules.ErrAmbiguousPath, http.StatusBadRequest, "The path is malformed, or can be read in more than one way."},
	{rules.ErrInvalidCost, http.StatusBadRequest, "What the request costs is not a whole number of at least 1."},
	{rules.ErrAttributeTooLong, http.StatusRequestHeaderFieldsTooLarge, "Something that requests are limited by is too long."},
}
