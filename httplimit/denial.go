package httplimit

import (
	"net/http"
	"slices"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/problem"
	"github.com/sluiceproject/sluice/internal/quota"
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
	return (*quota.Denial)(d).RetryAfter()
}

// Detail says in a sentence why the request was denied and when to come again, as the default answer does.
func (d *Denial) Detail() string { return (*quota.Denial)(d).Detail() }

// deny answers a denied request. The slices may be reused afterwards.
func (c *config) deny(w http.ResponseWriter, r *http.Request, rules []*sluice.Rule, ps *quota.Policies, ds []sluice.Decision) {
	c.headers.Set(w.Header(), r, ps, ds, true)
	denial := quota.DenialOf(rules, ds)
	if c.onDenied != nil {
		c.onDenied(w, r, &Denial{slices.Clone(rules), slices.Clone(ds), denial.Tightest, denial.Status})
		return
	}
	status := denial.Status
	var room [4]string
	p := problem.Problem{
		Type: problem.TypeQuota, Title: http.StatusText(status), Status: status, Instance: problem.Instance(r), Detail: denial.Detail(), Violated: ps.AppendDenied(room[:0], ds),
	}
	d := &ds[denial.Tightest]
	if status == http.StatusServiceUnavailable && !d.Never {
		p.Type = problem.TypeCapacity
	}
	if !d.Never {
		p.RetryAfterMS = max(1, int64((d.RetryAfter+time.Millisecond-1)/time.Millisecond))
	}
	p.Write(w)
}
