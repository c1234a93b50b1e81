package httplimit

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/problem"
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
	t := &d.Decisions[d.Tightest]
	return t.RetryAfter, t.Never
}

// Detail says in a sentence why the request was denied and when to come again, as the default answer does.
func (d *Denial) Detail() string {
	name, flight := "", false
	if len(d.Rules) == len(d.Decisions) {
		name = fieldText(d.Rules[d.Tightest].Name) + " "
		flight = d.Rules[d.Tightest].Limit.Algorithm == sluice.Concurrency
	}
	t := &d.Decisions[d.Tightest]
	before, after := "Rate limit ", "is used up; retry in "
	switch {
	case t.Never:
		return "The request costs more than rate limit " + name + "ever allows at once; retrying will not help."
	case d.Status == http.StatusServiceUnavailable:
		before, name, after = "Requests cannot be counted at the moment; retry in ", "", ""
	case t.Blocked:
		before, after = "The caller is blocked under rate limit ", "and may retry in "
		if name == "" {
			before = "The caller is blocked "
		}
	case flight:
		before, after = "As many requests as limit ", "allows are in flight; retry in "
	}
	var room [160]byte
	b := append(append(append(room[:0], before...), name...), after...)
	return string(append(strconv.AppendInt(b, max(1, ceilSeconds(t.RetryAfter)), 10), " s."...))
}

// deny answers a denied request. The slices may be reused afterwards.
func (c *config) deny(w http.ResponseWriter, r *http.Request, rules []*sluice.Rule, ps *policies, ds []sluice.Decision) {
	c.setHeaders(w.Header(), r, ps, ds, true)
	denial := denialOf(rules, ds)
	if c.onDenied != nil {
		c.onDenied(w, r, &Denial{slices.Clone(rules), slices.Clone(ds), denial.Tightest, denial.Status})
		return
	}
	status := denial.Status
	var room [4]string
	p := problem.Problem{
		Type: problem.TypeQuota, Title: http.StatusText(status), Status: status, Instance: problem.Instance(r), Detail: denial.Detail(), Violated: room[:0],
	}
	for i := range ps.each {
		if !ds[i].Allowed {
			p.Violated = append(p.Violated, ps.each[i].name)
		}
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

// denialOf sums up decisions of which one denies.
func denialOf(rules []*sluice.Rule, ds []sluice.Decision) Denial {
	d := Denial{rules, ds, sluice.Tightest(ds), http.StatusTooManyRequests}
	if ds[d.Tightest].Source == sluice.SourceClosed {
		d.Status = http.StatusServiceUnavailable
	}
	return d
}
