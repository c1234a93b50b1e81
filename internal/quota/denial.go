package quota

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice"
)

// Denial describes a denied request.
type Denial struct {
	Rules           []*sluice.Rule
	Decisions       []sluice.Decision // Decisions[i] is the decision of Rules[i]
	MostRestrictive int               // index of the most restrictive decision, see [sluice.MostRestrictive]
	Status          int               // 429, or 503 if a rule failed closed because the store is unavailable
}

// RetryAfter returns the time until a retry may be allowed. never is true if no retry can succeed, because the cost
// exceeds the limit.
func (d *Denial) RetryAfter() (after time.Duration, never bool) {
	t := &d.Decisions[d.MostRestrictive]
	return t.RetryAfter, t.ExceedsLimit
}

// Detail returns the problem detail of the default response: a sentence that names the limit and the time to retry.
func (d *Denial) Detail() string {
	name, concurrency := "", false
	if len(d.Rules) == len(d.Decisions) {
		name = " " + fieldText(d.Rules[d.MostRestrictive].Name)
		concurrency = d.Rules[d.MostRestrictive].Limit.Algorithm == sluice.Concurrency
	}
	t := &d.Decisions[d.MostRestrictive]
	before, after := "Rate limit", " exceeded; retry in "
	if t.Remaining > 0 {
		after = " has less quota left than the request costs; retry in "
	}
	switch {
	case t.ExceedsLimit && name == "":
		return "The request costs more than the rate limit allows at once; no retry can succeed."
	case t.ExceedsLimit:
		return "The request costs more than rate limit" + name + " allows at once; no retry can succeed."
	case d.Status == http.StatusServiceUnavailable:
		before, name, after = "Rate limits cannot be checked at the moment", "", "; retry in "
	case t.Blocked:
		before, after = "The client is blocked by rate limit", "; retry in "
		if name == "" {
			before = "The client is blocked"
		}
	case concurrency:
		before, after = "Concurrency limit", " reached: too many requests in flight; retry in "
	}
	var room [160]byte
	b := append(append(append(room[:0], before...), name...), after...)
	return string(append(strconv.AppendInt(b, max(1, CeilSeconds(t.RetryAfter)), 10), " s."...))
}

// DenialOf returns the Denial for decisions of which at least one denies. decisions[i] is the decision of rules[i].
func DenialOf(rules []*sluice.Rule, ds []sluice.Decision) Denial {
	d := Denial{rules, ds, sluice.MostRestrictive(ds), http.StatusTooManyRequests}
	if ds[d.MostRestrictive].Source == sluice.SourceFailClosed {
		d.Status = http.StatusServiceUnavailable
	}
	return d
}

// NewDenial returns the Denial for takes of which at least one is denied. decisions[i] is the decision of takes[i].
func NewDenial(takes []sluice.Take, decisions []sluice.Decision) *Denial {
	rules := make([]*sluice.Rule, len(takes))
	for i := range takes {
		rules[i] = takes[i].Rule
	}
	d := DenialOf(rules, decisions)
	return &d
}
